// The live change feed: the latest version of every written item, or all versions and deletes.
import { useRef, useState } from 'preact/hooks';
import { type Item, containerPath, keyOf } from '../api/calls';
import { ApiError, get } from '../api/client';
import type { ContainerProps } from '../resources/container';
import * as format from '../ui/format';
import { Grid } from '../ui/grid';
import { Button, Dialog, Empty, Notice, useEvery } from '../ui/parts';
import { Value } from '../ui/values';
import { Editor } from '../editor/editor';

const KEPT = 5000;

type Mode = 'now' | 'beginning' | 'versions';

interface Change {
  /** `write` in the feed of latest versions, which does not say more. */
  operation: string;
  id: string;
  key: string;
  lsn: number | undefined;
  /** None after a delete. */
  item: Item | null;
  range: string;
  seen: number;
}

/** A change in the feed of all versions and deletes. */
interface Version {
  current?: Item;
  metadata: { operationType: string; lsn: number; id?: string; partitionKey?: Record<string, unknown>; timeToLiveExpired?: boolean };
}

const ENVELOPES = { 'a-im': 'Full-Fidelity Feed', 'x-ms-cosmos-changefeed-wire-format-version': '2021-09-15' };

export function ChangesPage({ place, definition, shown }: ContainerProps & { shown: boolean }) {
  const [mode, setMode] = useState<'stopped' | Mode>('stopped');
  const [changes, setChanges] = useState<Change[]>([]);
  const [count, setCount] = useState(0);
  const [error, setError] = useState<string | null>(null);
  const [open, setOpen] = useState<Change | null>(null);
  /** The position in each range; none before the first read. */
  const positions = useRef<Map<string, string | null> | null>(null);

  const readRanges = async (): Promise<{ id: string; parents?: string[] }[]> =>
    (await get<{ PartitionKeyRanges: { id: string; parents?: string[] }[] }>(containerPath(place, 'pkranges'))).body.PartitionKeyRanges;

  useEvery(
    1000,
    async () => {
      if (mode === 'stopped' || !shown) return;
      try {
        if (!positions.current) positions.current = new Map((await readRanges()).map((range) => [range.id, mode === 'beginning' ? null : '*']));
        const found: Change[] = [];
        for (const [range, position] of [...positions.current]) {
          const headers: Record<string, string> = { ...(mode === 'versions' ? ENVELOPES : { 'a-im': 'Incremental Feed' }), 'x-ms-documentdb-partitionkeyrangeid': range, 'x-ms-max-item-count': '500' };
          if (position) headers['if-none-match'] = position;
          try {
            const page = await get<{ Documents: (Item | Version)[] } | null>(containerPath(place, 'docs'), { headers });
            positions.current.set(range, page.headers.get('etag') ?? position);
            for (const entry of page.body?.Documents ?? []) found.push({ ...(mode === 'versions' ? ofVersion(entry as Version) : ofItem(entry as Item)), range, seen: Date.now() });
          } catch (failure) {
            if (!(failure instanceof ApiError && failure.status === 410)) throw failure;
            // The partition was split or merged: its successors continue from its position.
            positions.current.delete(range);
            for (const next of await readRanges()) if (next.parents?.includes(range) && !positions.current.has(next.id)) positions.current.set(next.id, position);
          }
        }
        if (found.length > 0) {
          setCount((before) => before + found.length);
          setChanges((before) => [...found.reverse(), ...before].slice(0, KEPT));
        }
        setError(null);
      } catch (failure) {
        setError((failure as Error).message);
      }
    },
    [mode, shown],
  );

  const ofItem = (item: Item) => ({ operation: 'write', id: item.id, key: JSON.stringify(keyOf(definition, item)), lsn: item._lsn as number | undefined, item });
  const ofVersion = ({ current, metadata }: Version) => {
    const item = current && 'id' in current ? current : null;
    const key = item ? keyOf(definition, item) : Object.values(metadata.partitionKey ?? {});
    return { operation: metadata.timeToLiveExpired ? 'expired' : metadata.operationType, id: item?.id ?? metadata.id ?? '', key: JSON.stringify(key), lsn: metadata.lsn, item };
  };

  const begin = (from: Mode) => {
    positions.current = null;
    setChanges([]);
    setCount(0);
    setMode(from);
  };
  return (
    <div class="items">
      <div class="toolbar">
        {mode === 'stopped' ? (
          <>
            <Button kind="primary" icon="play" onClick={() => begin('now')}>
              From now
            </Button>
            <Button icon="history" onClick={() => begin('beginning')}>
              From the beginning
            </Button>
            <Button icon="copy" onClick={() => begin('versions')}>
              All versions and deletes
            </Button>
          </>
        ) : (
          <Button kind="danger" icon="stop" onClick={() => setMode('stopped')}>
            Stop
          </Button>
        )}
        <span class="muted" role="status">
          {mode === 'stopped' ? 'The feed has the latest version of every item in write order. All versions and deletes need a change feed policy with a retention time.' : `${format.plural(count, 'change')} so far`}
        </span>
      </div>
      {error && (
        <div class="pad">
          <Notice kind="error">{error}</Notice>
        </div>
      )}
      {changes.length === 0 ? (
        <Empty title={mode === 'stopped' ? 'Watch changes as they are written.' : 'Waiting for changes…'} />
      ) : (
        <Grid
          label="Changes, newest first"
          columns={[
            { id: 'seen', title: 'Seen', width: 90, cell: (change) => format.timeOfDay(change.seen) },
            { id: 'range', title: 'Partition', width: 90, cell: (change) => change.range },
            { id: 'lsn', title: 'LSN', width: 90, numeric: true, cell: (change) => String(change.lsn ?? '') },
            { id: 'operation', title: 'Operation', width: 100, cell: (change) => change.operation },
            { id: 'id', title: 'id', width: 200, cell: (change) => change.id },
            { id: 'key', title: 'key', width: 180, cell: (change) => change.key },
            { id: 'item', title: 'item', width: 600, cell: (change) => change.item && <Value value={Object.fromEntries(Object.entries(change.item).filter(([name]) => !name.startsWith('_')))} /> },
          ]}
          rows={changes}
          onOpen={(change) => change.item && setOpen(change)}
        />
      )}
      {open && (
        <Dialog title={open.id} wide onClose={() => setOpen(null)}>
          <div class="diff-box">
            <Editor language="json" label="Changed item" value={JSON.stringify(open.item, null, 2)} readOnly />
          </div>
        </Dialog>
      )}
    </div>
  );
}
