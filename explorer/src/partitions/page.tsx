// The live view of a container's partitions: ranges, heat, throttling, keys, splits.
import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { locateKey, mergePartitions, readHeat, readPartitions, readThrottles, splitPartition } from '../api/calls';
import type { ContainerView, Heat, Throttle } from '../api/shapes';
import { parseKeyPart } from '../items/page';
import type { ContainerProps } from '../resources/container';
import { handover, go } from '../state/route';
import { Chart } from '../ui/chart';
import * as format from '../ui/format';
import { Button, Confirm, Notice, Spinner, say, useEvery } from '../ui/parts';
import { Details } from './details';
import { filterForKey } from './keys';
import { LEVELS, layOut, levelOf, positionOfKey } from './layout';
import { ROWS, type Row, Waterfall, rowOf } from './waterfall';
import { Throttles } from './throttles';

const HISTORY = 299;
/** With more partitions, the strip has no space for labels. */
const DENSE = 60;

interface Live {
  heat: Heat;
  /** Newest first. */
  rows: Row[];
  /** Totals by second, oldest first. */
  times: number[];
  used: number[];
  refused: number[];
}

export function PartitionsPage({ place, definition, reload }: ContainerProps) {
  const [live, setLive] = useState<Live | null>(null);
  const [view, setView] = useState<ContainerView | null>(null);
  const [throttles, setThrottles] = useState<Throttle[]>([]);
  const [selected, setSelected] = useState<string | null>(null);
  const [error, setError] = useState<string | null>(null);
  const [paused, setPaused] = useState(false);
  const [dialog, setDialog] = useState<{ what: 'split'; id: string } | { what: 'merge'; ids: string[] } | null>(null);
  const [located, setLocated] = useState<{ key: string; partition: string; effectiveKey: string } | null>(null);
  const known = useRef<Live | null>(null);
  const many = (live?.heat.partitions.length ?? 0) > 100;

  useEvery(
    many ? 2000 : 1000,
    async () => {
      if (paused) return;
      try {
        const before = known.current;
        const seconds = before ? Math.min(HISTORY, Math.max(1, Math.ceil(Date.now() / 1000) - before.heat.second + 2)) : HISTORY;
        const heat = await readHeat(place, seconds, many ? 1 : 5);
        known.current = merge(before, heat);
        setLive(known.current);
        setError(null);
      } catch (failure) {
        setError((failure as Error).message);
      }
    },
    [paused, many],
  );
  // Sizes need a scan of the keys: seldom, and whenever the partitions have changed.
  const shape = live?.heat.partitions.map((one) => one.id).join() ?? '';
  useEffect(() => {
    if (!shape) return;
    readPartitions(place).then(setView, () => {});
    const timer = setInterval(() => !document.hidden && readPartitions(place).then(setView, () => {}), 15_000);
    return () => clearInterval(timer);
  }, [shape]);
  const path = `dbs/${place.database}/colls/${place.container}`;
  useEvery(
    3000,
    async () => {
      const events = await readThrottles();
      setThrottles(events.filter((event) => event.container === path));
    },
    [],
  );

  const placed = useMemo(() => (live ? layOut(live.heat.partitions) : []), [shape]);
  const totalChart = useMemo(
    () =>
      live && {
        x: live.times,
        series: [
          { title: 'RU/s', values: live.used, colour: '--accent', fill: true },
          ...(share(live.heat) > 0 ? [{ title: 'provisioned', values: live.times.map(() => share(live.heat)), colour: '--muted', dash: [4, 4] }] : []),
          { title: '429/s', values: live.refused, colour: '--bad' },
        ],
      },
    [live],
  );
  if (!live) return <div class="loading-part">{error ? <Notice kind="error">{error}</Notice> : <Spinner />}</div>;

  const partitions = new Map(live.heat.partitions.map((one) => [one.id, one]));
  const sizes = new Map(view?.partitions.map((one) => [one.id, one]) ?? []);
  const busiest = Math.max(0, ...live.heat.partitions.map((one) => one.usedBySecond.at(-1) ?? 0));
  const now = live.used.at(-1) ?? 0;
  const refusedNow = live.refused.slice(-10).reduce((sum, one) => sum + one, 0);
  const chosen = selected !== null && partitions.has(selected) ? selected : null;
  const marker = located ? positionOfKey(located.effectiveKey) : null;
  const open = (id: string) => setSelected(id === chosen ? null : id);

  return (
    <div class="scrolls partitions">
      <div class="stat-row">
        <Stat title="Partitions" value={format.count(live.heat.partitions.length)} note={live.heat.partitionsChanging ? 'a split or merge is running' : undefined} busy={live.heat.partitionsChanging} />
        <Stat title="Used now" value={`${format.short(now)} RU/s`} note={share(live.heat) > 0 ? `of ${format.count(share(live.heat))} provisioned` : 'no limit'} />
        <Stat title="Throttled (429), last 10 s" value={format.count(refusedNow)} bad={refusedNow > 0} />
        <Stat title="Stored" value={view ? format.bytes(view.partitions.reduce((sum, one) => sum + one.bytes, 0)) : '…'} note={view ? format.plural(view.partitions.reduce((sum, one) => sum + one.logicalPartitions, 0), 'key') : undefined} />
        <Button class="live-button" kind="quiet" icon={paused ? 'play' : 'stop'} aria-pressed={paused} onClick={() => setPaused(!paused)}>
          {paused ? 'Paused' : 'Live'}
        </Button>
      </div>
      {error && <Notice kind="error">{error}</Notice>}
      <section class="card stack">
        <div class="section-head">
          <h2>The hash space</h2>
          <ul class="legend" aria-label="Colours">
            {LEVELS.map((title, level) => (
              <li key={title}>
                <span class={`swatch level-${level}`} />
                {title}
              </li>
            ))}
            <li>
              <span class="swatch refused" />
              429
            </li>
          </ul>
        </div>
        <div class="strip-box">
          <div class={`strip ${placed.length > DENSE ? 'dense' : ''}`} role="group" aria-label="Partitions by hash range">
            {placed.map((at) => {
              const one = partitions.get(at.id);
              if (!one) return null;
              const used = one.usedBySecond.at(-1) ?? 0;
              const level = levelOf(used, one.requestUnitsPerSecond, busiest);
              const refused = one.throttledBySecond.slice(-3).some((count) => count > 0);
              const of = one.requestUnitsPerSecond > 0 ? format.percent(used / one.requestUnitsPerSecond) : `${format.short(used)} RU/s`;
              return (
                <button
                  key={at.id}
                  type="button"
                  class={`strip-part level-${level} ${refused ? 'refused' : ''} ${at.id === chosen ? 'chosen' : ''}`}
                  style={{ left: `${at.from * 100}%`, width: `${(at.to - at.from) * 100}%` }}
                  aria-pressed={at.id === chosen}
                  aria-label={placed.length > DENSE ? `Partition ${at.id} ${of} used, ${LEVELS[level]}${refused ? ', refusing requests' : ''}` : undefined}
                  title={`Partition ${at.id} · ${one.min || '00'} to ${one.max} · ${of}`}
                  onClick={() => open(at.id)}
                >
                  <span class="visually-hidden">Partition</span>
                  <span class="strip-id">{at.id}</span>
                  <span class="strip-use">{refused ? '429' : of}</span>
                  <span class="visually-hidden">{refused ? `refusing requests, ${of} used` : `used, ${LEVELS[level]}`}</span>
                </button>
              );
            })}
            {marker !== null && <span class="strip-marker" style={{ left: `${marker * 100}%` }} title={located!.key} />}
          </div>
          <Waterfall rows={live.rows} label={`Use of ${placed.length} partitions over the last ${ROWS} seconds, newest on top`} />
          <div class="strip-axis">
            <span>00</span>
            <span>time runs down: {ROWS / 60} minutes</span>
            <span>FF</span>
          </div>
        </div>
        <Locate place={place} paths={definition.partitionKey.paths} located={located} onLocated={(found) => { setLocated(found); if (found) setSelected(found.partition); }} />
      </section>
      {chosen && (
        <Details
          key={chosen}
          place={place}
          id={chosen}
          live={partitions.get(chosen)!}
          size={sizes.get(chosen) ?? null}
          ids={placed.map((at) => at.id)}
          changing={live.heat.partitionsChanging}
          onSplit={() => setDialog({ what: 'split', id: chosen })}
          onMerge={(ids) => setDialog({ what: 'merge', ids })}
          onKey={(key) => {
            handover.value = { filter: filterForKey(definition.partitionKey.paths, key) };
            go({ page: 'container', ...place, tab: 'items' });
          }}
          onClose={() => setSelected(null)}
        />
      )}
      <section class="card">
        <h2>Request units, last five minutes</h2>
        {totalChart && <Chart label="Request units and refusals by second" kind="time" x={totalChart.x} series={totalChart.series} height={200} />}
      </section>
      <Throttles events={throttles} partitions={live.heat.partitions.length} total={share(live.heat)} />
      {dialog?.what === 'split' && (
        <Confirm
          title={`Split partition ${dialog.id}?`}
          action="Split"
          text={<p>Its data is copied into two new partitions, cut in the middle of it, while reads and writes go on. Each has half of what the container’s throughput gives to a partition now, and they can be merged again.</p>}
          onConfirm={() => {
            void splitPartition(place, dialog.id).then(
              (answer) => {
                say(`Partition ${dialog.id} is now ${answer.body.children.join(' and ')}.`);
                reload();
              },
              (failure: Error) => say(failure.message, 'error'),
            );
          }}
          onClose={() => setDialog(null)}
        />
      )}
      {dialog?.what === 'merge' && (
        <Confirm
          title={`Merge partitions ${dialog.ids.join(' and ')}?`}
          action="Merge"
          text={<p>Both become one partition, while reads and writes go on.</p>}
          onConfirm={() => {
            void mergePartitions(place, dialog.ids).then(
              (answer) => say(`They are now partition ${answer.body.child}.`),
              (failure: Error) => say(failure.message, 'error'),
            );
          }}
          onClose={() => setDialog(null)}
        />
      )}
    </div>
  );
}

const share = (heat: Heat): number => heat.partitions.reduce((sum, one) => sum + one.requestUnitsPerSecond, 0);

/** What was known, and the seconds that are new. */
function merge(before: Live | null, heat: Heat): Live {
  const placed = layOut(heat.partitions);
  const byId = new Map(heat.partitions.map((one) => [one.id, one]));
  const count = heat.partitions[0]?.usedBySecond.length ?? 0;
  const fresh = before ? Math.min(count, heat.second - before.heat.second) : count;
  const rows: Row[] = [];
  const times: number[] = [];
  const used: number[] = [];
  const refused: number[] = [];
  for (let back = fresh; back >= 1; back--) {
    const at = count - back;
    const busiest = Math.max(0, ...heat.partitions.map((one) => one.usedBySecond[at] ?? 0));
    const cells = placed.map(({ id, from, to }) => {
      const one = byId.get(id)!;
      return { from, to, level: levelOf(one.usedBySecond[at] ?? 0, one.requestUnitsPerSecond, busiest), throttled: (one.throttledBySecond[at] ?? 0) > 0 };
    });
    rows.unshift(rowOf(cells));
    times.push(heat.second - back);
    used.push(heat.partitions.reduce((sum, one) => sum + (one.usedBySecond[at] ?? 0), 0));
    refused.push(heat.partitions.reduce((sum, one) => sum + (one.throttledBySecond[at] ?? 0), 0));
  }
  return {
    heat,
    rows: [...rows, ...(before?.rows ?? [])].slice(0, ROWS),
    times: [...(before?.times ?? []), ...times].slice(-HISTORY),
    used: [...(before?.used ?? []), ...used].slice(-HISTORY),
    refused: [...(before?.refused ?? []), ...refused].slice(-HISTORY),
  };
}

export function Stat({ title, value, note, bad, busy }: { title: string; value: string; note?: string; bad?: boolean; busy?: boolean }) {
  return (
    <div class={`stat ${bad ? 'bad' : ''}`}>
      <span class="stat-title">{title}</span>
      <span class="stat-value">{value}</span>
      {note && (
        <span class="stat-note">
          {busy && <Spinner label="Running" />} {note}
        </span>
      )}
    </div>
  );
}

function Locate({ place, paths, located, onLocated }: { place: ContainerProps['place']; paths: string[]; located: { key: string; partition: string; effectiveKey: string } | null; onLocated: (found: { key: string; partition: string; effectiveKey: string } | null) => void }) {
  const [parts, setParts] = useState(paths.map(() => ''));
  const [error, setError] = useState<string | null>(null);
  const find = async (event: Event) => {
    event.preventDefault();
    try {
      const found = await locateKey(place, parts.map(parseKeyPart));
      onLocated({ key: found.partitionKey, partition: found.partition, effectiveKey: found.effectiveKey });
      setError(null);
    } catch (failure) {
      setError((failure as Error).message);
      onLocated(null);
    }
  };
  return (
    <form class="locate" onSubmit={find}>
      <span class="locate-title">Where does a key land?</span>
      {paths.map((path, at) => (
        <input key={path} class="code" aria-label={`Value of ${path}`} placeholder={path} value={parts[at]} onInput={(event) => setParts(parts.map((part, index) => (index === at ? event.currentTarget.value : part)))} />
      ))}
      <Button type="submit" icon="search">
        Find
      </Button>
      <span role="status" class={error ? 'bad-text' : ''}>
        {error ??
          (located && (
            <>
              <code>{located.key}</code> hashes to <code title={located.effectiveKey}>{located.effectiveKey.slice(0, 12)}…</code>, in <strong>partition {located.partition}</strong>
            </>
          ))}
      </span>
    </form>
  );
}
