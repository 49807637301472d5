// Rows as a chart.
import { useMemo, useState } from 'preact/hooks';
import { Chart, colourAt } from '../ui/chart';
import { Empty } from '../ui/parts';
import { chartable, isTime } from './chartable';

export default function ResultChart({ rows }: { rows: unknown[] }) {
  const possible = useMemo(() => chartable(rows), [rows]);
  const [across, setAcross] = useState<string | null>(null);
  const [up, setUp] = useState<string[] | null>(null);
  const [kind, setKind] = useState<'auto' | 'bars' | 'lines'>('auto');
  const x = possible ? (across && possible.across.includes(across) ? across : possible.across[0]!) : '#';
  const chosen = possible ? (up?.filter((name) => possible.up.includes(name)) ?? possible.up.filter((name) => name !== x).slice(0, 1)) : [];
  const drawn = useMemo(() => {
    if (!possible) return null;
    const table = rows as Record<string, unknown>[];
    const time = x !== '#' && isTime(x, rows);
    const numeric = x === '#' || possible.up.includes(x);
    const order = table.map((_, at) => at);
    if (time) order.sort((a, b) => Date.parse(table[a]![x] as string) - Date.parse(table[b]![x] as string));
    else if (numeric && x !== '#') order.sort((a, b) => Number(table[a]![x]) - Number(table[b]![x]));
    const at = order.map((index, place) => (time ? Date.parse(table[index]![x] as string) / 1000 : x === '#' ? place + 1 : numeric ? Number(table[index]![x]) : place));
    return {
      kind: time ? ('time' as const) : numeric ? ('number' as const) : ('category' as const),
      x: at,
      categories: time || numeric ? undefined : order.map((index) => String(table[index]![x])),
      values: (name: string) => order.map((index) => (typeof table[index]![name] === 'number' ? (table[index]![name] as number) : null)),
    };
  }, [rows, x, possible]);
  const bars = kind === 'bars' || (kind === 'auto' && drawn?.kind === 'category');
  const series = useMemo(() => (drawn ? chosen.map((name, place) => ({ title: name, values: drawn.values(name), colour: colourAt(place), bars, fill: !bars && chosen.length === 1 })) : []), [drawn, chosen.join(), bars]);
  if (!possible || !drawn) {
    return (
      <Empty title="No chart from these rows.">
        <p class="muted">
          A chart needs rows with a number and something to put below it, such as <code>SELECT c.city, COUNT(1) AS orders FROM c GROUP BY c.city</code>.
        </p>
      </Empty>
    );
  }
  return (
    <div class="chart-page">
      <div class="chart-options">
        <label>
          Across{' '}
          <select value={x} onChange={(event) => setAcross(event.currentTarget.value)}>
            {possible.across.map((name) => (
              <option key={name} value={name}>
                {name === '#' ? 'row number' : name}
              </option>
            ))}
          </select>
        </label>
        <fieldset>
          <legend class="visually-hidden">Up</legend>
          {possible.up.filter((name) => name !== x).map((name) => (
            <label key={name} class="check">
              <input
                type="checkbox"
                checked={chosen.includes(name)}
                onChange={(event) => setUp(event.currentTarget.checked ? [...chosen, name] : chosen.filter((other) => other !== name))}
              />
              <span class="code">{name}</span>
            </label>
          ))}
        </fieldset>
        <label>
          As{' '}
          <select value={kind} onChange={(event) => setKind(event.currentTarget.value as typeof kind)}>
            <option value="auto">what fits</option>
            <option value="bars">bars</option>
            <option value="lines">lines</option>
          </select>
        </label>
      </div>
      <Chart label={`${chosen.join(', ')} by ${x === '#' ? 'row' : x}, ${rows.length} rows`} x={drawn.x} kind={drawn.kind} categories={drawn.categories} series={series} height={360} />
    </div>
  );
}
