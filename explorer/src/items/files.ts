// Files of items: JSON lines, a JSON array, or CSV with a header.

/** The format of a file, by its name and first characters. */
export type FileKind = 'lines' | 'array' | 'csv';

export function kindOf(name: string, head: string): FileKind {
  if (/\.(csv|tsv)$/i.test(name)) return 'csv';
  return head.trimStart().startsWith('[') ? 'array' : 'lines';
}

/** The items of a file, one after the other, with the bytes that were read so far. */
export async function* itemsOf(file: File, onRead: (bytes: number) => void): AsyncGenerator<Record<string, unknown>> {
  const kind = kindOf(file.name, await file.slice(0, 100).text());
  if (kind === 'array') {
    const all = JSON.parse(await file.text()) as unknown;
    onRead(file.size);
    if (!Array.isArray(all)) throw new Error('The file is not an array of items.');
    for (const item of all) yield asItem(item, 0);
    return;
  }
  const separator = /\.tsv$/i.test(file.name) ? '\t' : ',';
  let header: string[] | null = null;
  let number = 0;
  for await (const record of kind === 'csv' ? csvRecords(lines(file, onRead), separator) : lines(file, onRead)) {
    number++;
    if (typeof record === 'string') {
      if (record.trim() === '') continue;
      let item: unknown;
      try {
        item = JSON.parse(record);
      } catch (error) {
        throw new Error(`Line ${number}: ${(error as Error).message}`);
      }
      yield asItem(item, number);
    } else if (!header) header = record;
    else yield withId(Object.fromEntries(header.map((name, at) => [name, csvValue(record[at])]).filter(([, value]) => value !== undefined)) as Record<string, unknown>);
  }
}

function asItem(value: unknown, line: number): Record<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error(`${line ? `Line ${line}: ` : ''}Only objects can be items.`);
  return withId(value as Record<string, unknown>);
}

/** Items without an id get one. */
const withId = (item: Record<string, unknown>): Record<string, unknown> => {
  if (typeof item.id === 'string' && item.id !== '') return item;
  return { ...item, id: item.id === undefined ? crypto.randomUUID() : String(item.id) };
};

function csvValue(text: string | undefined): unknown {
  if (text === undefined || text === '') return undefined;
  if (/^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/.test(text) && Number.isFinite(Number(text))) return Number(text);
  if (text === 'true' || text === 'false') return text === 'true';
  if (text === 'null') return null;
  if (/^[[{]/.test(text)) {
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  }
  return text;
}

async function* lines(file: File, onRead: (bytes: number) => void): AsyncGenerator<string> {
  const reader = file.stream().pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  let read = 0;
  for (let part = await reader.read(); !part.done; part = await reader.read()) {
    read += part.value.length;
    onRead(Math.min(read, file.size));
    const found = (rest + part.value).split('\n');
    rest = found.pop()!;
    for (const line of found) yield line.endsWith('\r') ? line.slice(0, -1) : line;
  }
  if (rest) yield rest;
}

/** Records of a CSV file: quoted cells may contain separators and line breaks. */
export async function* csvRecords(source: AsyncIterable<string> | Iterable<string>, separator: string): AsyncGenerator<string[]> {
  let cells: string[] = [];
  let cell = '';
  let quoted = false;
  for await (const line of source) {
    if (!quoted && line === '') continue;
    for (let at = 0; at < line.length; at++) {
      const letter = line[at]!;
      if (quoted) {
        if (letter !== '"') cell += letter;
        else if (line[at + 1] === '"') {
          cell += '"';
          at++;
        } else quoted = false;
      } else if (letter === '"' && cell === '') quoted = true;
      else if (letter === separator) {
        cells.push(cell);
        cell = '';
      } else cell += letter;
    }
    if (quoted) cell += '\n';
    else {
      yield [...cells, cell];
      cells = [];
      cell = '';
    }
  }
}
