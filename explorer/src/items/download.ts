// Items as a file: JSON lines, or CSV with a column for each property.
import { type Place, SYSTEM_PROPERTIES, queryItems } from '../api/calls';
import { isRow } from '../ui/values';

export const csvCell = (value: unknown): string => {
  if (value === undefined || value === null) return '';
  const text = typeof value === 'object' ? JSON.stringify(value) : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

export function csvOf(rows: unknown[]): string {
  const names = [...new Set(rows.flatMap((row) => (isRow(row) ? Object.keys(row) : ['value'])))];
  const line = (row: unknown) => names.map((name) => csvCell(isRow(row) ? row[name] : row)).join(',');
  return [names.map(csvCell).join(','), ...rows.map(line)].join('\r\n');
}

export function saveFile(name: string, type: string, parts: BlobPart[]): void {
  const url = URL.createObjectURL(new Blob(parts, { type }));
  const link = document.createElement('a');
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

export async function download(place: Place, filter: string, kind: 'jsonl' | 'csv', onCount: (count: number) => void, signal: AbortSignal): Promise<void> {
  const rows: Record<string, unknown>[] = [];
  const lines: string[] = [];
  let continuation: string | null = null;
  let count = 0;
  do {
    const page = await queryItems(place, { query: `SELECT * FROM c${filter.trim() ? ` WHERE ${filter}` : ''}` }, { pageSize: 1000, continuation, signal });
    for (const row of page.rows as Record<string, unknown>[]) {
      for (const name of SYSTEM_PROPERTIES) delete row[name];
      if (kind === 'csv') rows.push(row);
      else lines.push(`${JSON.stringify(row)}\n`);
      count++;
    }
    onCount(count);
    continuation = page.continuation;
  } while (continuation);
  if (kind === 'csv') saveFile(`${place.container}.csv`, 'text/csv', [csvOf(rows)]);
  else saveFile(`${place.container}.jsonl`, 'application/x-ndjson', lines);
}
