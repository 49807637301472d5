// JSON values in cells, and the columns that rows suggest.
import type { Column } from './grid';

const PREVIEW = 120;

export function Value({ value }: { value: unknown }) {
  if (value === undefined) return <span class="value-none" />;
  if (value === null) return <span class="value-null">null</span>;
  switch (typeof value) {
    case 'string':
      return <span title={value.length > 24 ? value.slice(0, 2000) : undefined}>{value.length > 400 ? `${value.slice(0, 400)}…` : value}</span>;
    case 'number':
      return <span class="value-number">{String(value)}</span>;
    case 'boolean':
      return <span class="value-flag">{String(value)}</span>;
    default: {
      const text = JSON.stringify(value);
      return (
        <span class="value-object" title={text.slice(0, 2000)}>
          {text.length > PREVIEW ? `${text.slice(0, PREVIEW)}…` : text}
        </span>
      );
    }
  }
}

export type Row = Record<string, unknown>;
export const isRow = (value: unknown): value is Row => typeof value === 'object' && value !== null && !Array.isArray(value);

/** The properties of rows, the most frequent first, in the order of their first appearance; the system's own come last. */
export function propertiesOf(rows: unknown[], sample = 300): string[] {
  const counts = new Map<string, number>();
  for (const row of rows.slice(0, sample)) {
    if (isRow(row)) for (const name of Object.keys(row)) counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const own = (name: string) => (name.startsWith('_') ? 1 : 0);
  return [...counts].sort((a, b) => own(a[0]) - own(b[0]) || b[1] - a[1]).map(([name]) => name);
}

/** A width from what the first rows contain. */
export function widthOf(name: string, rows: unknown[]): number {
  let widest = name.length + 2;
  for (const row of rows.slice(0, 60)) {
    const value = isRow(row) ? row[name] : undefined;
    if (value === undefined) continue;
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    widest = Math.max(widest, Math.min(text.length, 36));
  }
  return Math.round(widest * 7.6 + 26);
}

export const isNumeric = (name: string, rows: unknown[]): boolean => {
  const values = rows.slice(0, 60).flatMap((row) => (isRow(row) && row[name] !== undefined && row[name] !== null ? [row[name]] : []));
  return values.length > 0 && values.every((value) => typeof value === 'number');
};

export function columnOf<R>(name: string, rows: unknown[], read: (row: R) => unknown, width?: number): Column<R> {
  return { id: name, title: name, width: width ?? widthOf(name, rows), numeric: isNumeric(name, rows), cell: (row) => <Value value={read(row)} /> };
}
