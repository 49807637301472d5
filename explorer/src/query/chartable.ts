// Whether rows can be charted, and how.
import { isRow } from '../ui/values';

export interface Chartable {
  /** Names that can be the axis at the bottom, the likeliest first; '#' is the number of the row. */
  across: string[];
  /** Names with numbers. */
  up: string[];
}

const DATE = /^\d{4}-\d{2}-\d{2}([T ]|$)/;

export function chartable(rows: unknown[]): Chartable | null {
  const found = rows.filter(isRow);
  if (found.length < 2 || found.length < rows.length) return null;
  const names = Object.keys(found[0]!);
  const filled = (name: string) => found.map((row) => row[name]).filter((value) => value !== null && value !== undefined);
  const up = names.filter((name) => !name.startsWith('_') && filled(name).length > 0 && filled(name).every((value) => typeof value === 'number'));
  if (up.length === 0) return null;
  const texts = names.filter((name) => !name.startsWith('_') && filled(name).length === found.length && filled(name).every((value) => typeof value === 'string' || typeof value === 'boolean'));
  const times = texts.filter((name) => isTime(name, rows));
  const across = [...times, ...texts.filter((name) => !times.includes(name)), ...up, '#'];
  return { across, up };
}

export const isTime = (name: string, rows: unknown[]): boolean =>
  rows.every((row) => isRow(row) && typeof row[name] === 'string' && DATE.test(row[name]) && !Number.isNaN(Date.parse(row[name])));

/** Whether a chart is more useful than the table: a few rows with a category or time, and numbers. */
export function suggestsChart(rows: unknown[]): boolean {
  const found = chartable(rows);
  if (!found || rows.length < 2 || rows.length > 2000) return false;
  const names = Object.keys(rows[0] as object).filter((name) => !name.startsWith('_'));
  const first = found.across[0]!;
  // Whole items are better read as a table.
  if ('_rid' in (rows[0] as object) || names.includes('id')) return false;
  return !found.up.includes(first) && first !== '#' && names.length <= 5 && new Set(rows.map((row) => (row as Record<string, unknown>)[first])).size === rows.length;
}
