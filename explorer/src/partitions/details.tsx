// One partition: its range, load and size, and the logical partitions in it.
import { useState } from 'preact/hooks';
import { type Place, readPartitionKeys } from '../api/calls';
import type { ContainerView, LivePartition, PartitionKeys } from '../api/shapes';
import * as format from '../ui/format';
import { Button, Dialog, Notice, Spinner, useLoaded } from '../ui/parts';

/** Logical partitions that are listed by name, as many as the server names. */
const LISTED = 1000;

interface DetailsProps {
  place: Place;
  id: string;
  live: LivePartition;
  size: ContainerView['partitions'][number] | null;
  ids: string[];
  changing: boolean;
  onSplit: () => void;
  onMerge: (ids: string[]) => void;
  onKey: (key: string) => void;
  onClose: () => void;
}

export function Details({ place, id, live, size, ids, changing, onSplit, onMerge, onKey, onClose }: DetailsProps) {
  const used = live.usedBySecond.at(-1) ?? 0;
  const [listing, setListing] = useState(false);
  // The last one has only the one before it.
  const at = ids.indexOf(id);
  const other = ids[at + 1] ?? ids[at - 1];
  const most = size?.bytes || 1;
  return (
    <section class="card stack" aria-label={`Partition ${id}`}>
      <div class="section-head">
        <h2>Partition {id}</h2>
        <div class="row">
          <Button icon="split" disabled={changing} onClick={onSplit}>
            Split
          </Button>
          {other !== undefined && (
            <Button disabled={changing} onClick={() => onMerge(ids.indexOf(other) > at ? [id, other] : [other, id])}>
              Merge with {other}
            </Button>
          )}
          <Button icon="close" kind="quiet" label="Close the partition" onClick={onClose} />
        </div>
      </div>
      <dl class="figures">
        <div>
          <dt>Range</dt>
          <dd class="code" title={`${live.min || '00'} to ${live.max}`}>
            {(live.min || '00').slice(0, 8)} – {live.max.slice(0, 8)}
          </dd>
        </div>
        <div>
          <dt>Used</dt>
          <dd>
            {format.short(used)} {live.requestUnitsPerSecond > 0 && `of ${format.count(live.requestUnitsPerSecond)}`} RU/s
          </dd>
        </div>
        <div>
          <dt>Burst credit</dt>
          <dd>{format.short(live.banked)} RU</dd>
        </div>
        <div>
          <dt>Throttled since start</dt>
          <dd>{format.count(live.throttled)}</dd>
        </div>
        {size && (
          <>
            <div>
              <dt>Items</dt>
              <dd>{format.count(size.items)}</dd>
            </div>
            <div>
              <dt>Size</dt>
              <dd>
                {format.bytes(size.bytes)} <span class="muted">({format.bytes(size.storedBytes)} with index)</span>
              </dd>
            </div>
            <div>
              <dt>Keys</dt>
              <dd>{format.count(size.logicalPartitions)}</dd>
            </div>
            <div>
              <dt>LSN</dt>
              <dd>{format.count(size.lsn)}</dd>
            </div>
          </>
        )}
        {live.parents.length > 0 && (
          <div>
            <dt>Parents</dt>
            <dd>{live.parents.join(', ')}</dd>
          </div>
        )}
      </dl>
      <div class="key-lists">
        <KeyList title="Hottest keys" keys={live.hottestKeys.map((key) => ({ key: key.partitionKey, share: key.sharePercent / 100, text: `${format.short(key.requestUnits)} RU` }))} onKey={onKey} />
        <KeyList title="Largest keys" keys={(size?.largestKeys ?? []).slice(0, 8).map((key) => largeKey(key, most))} onKey={onKey} />
      </div>
      {size && size.logicalPartitions > 0 && (
        <div>
          <Button kind="quiet" onClick={() => setListing(true)}>
            Show all logical partitions ({format.count(size.logicalPartitions)})
          </Button>
        </div>
      )}
      {listing && <AllKeys place={place} id={id} bytes={most} onKey={onKey} onClose={() => setListing(false)} />}
    </section>
  );
}

const largeKey = (key: PartitionKeys['largestKeys'][number], all: number) => ({ key: key.partitionKey, share: key.bytes / all, text: `${format.bytes(key.bytes)}, ${format.plural(key.items, 'item')}` });

/** Every logical partition of the range, the largest first. */
function AllKeys({ place, id, bytes, onKey, onClose }: { place: Place; id: string; bytes: number; onKey: (key: string) => void; onClose: () => void }) {
  const { value, error } = useLoaded(() => readPartitionKeys(place, id, LISTED), []);
  const [letters, setLetters] = useState('');
  const wanted = letters.toLowerCase();
  const found = (value?.largestKeys ?? []).filter((key) => key.partitionKey.toLowerCase().includes(wanted));
  return (
    <Dialog title={`Logical partitions of partition ${id}`} wide onClose={onClose}>
      <div class="stack">
        {error && <Notice kind="error">{error}</Notice>}
        {!value && !error && <Spinner />}
        {value && (
          <>
            <p class="muted" role="status">
              {value.logicalPartitions > value.largestKeys.length ? `The ${format.count(value.largestKeys.length)} largest of ${format.count(value.logicalPartitions)}` : format.plural(value.logicalPartitions, 'logical partition')}
              {wanted && `, ${format.count(found.length)} matching`}
            </p>
            <input aria-label="Filter keys" placeholder="Filter keys" value={letters} onInput={(event) => setLetters(event.currentTarget.value)} />
            <KeyList title="Largest first" keys={found.map((key) => largeKey(key, bytes))} onKey={onKey} />
          </>
        )}
      </div>
    </Dialog>
  );
}

function KeyList({ title, keys, onKey }: { title: string; keys: { key: string; share: number; text: string }[]; onKey: (key: string) => void }) {
  return (
    <div>
      <h3>{title}</h3>
      {keys.length === 0 && <p class="muted">None yet.</p>}
      <ul class="key-list">
        {keys.map((one) => (
          <li key={one.key}>
            <button type="button" class="link code" title="Show its items" onClick={() => onKey(one.key)}>
              {one.key}
            </button>
            <span class="funnel-track">
              <span class="funnel-bar" style={{ width: `${Math.max(1, Math.min(1, one.share) * 100)}%` }} />
            </span>
            <span class="muted">
              {format.percent(Math.min(1, one.share))} · {one.text}
            </span>
          </li>
        ))}
      </ul>
    </div>
  );
}
