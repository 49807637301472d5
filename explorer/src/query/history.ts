// Query history and saved queries, stored in this browser only.

export interface Remembered {
  text: string;
  at: number;
  place: string;
  name?: string;
  rows?: number;
  charge?: number;
}

const HISTORY = 'orrery.queries';
const SAVED = 'orrery.saved';
const MOST = 100;

const read = (name: string): Remembered[] => {
  try {
    return JSON.parse(localStorage.getItem(name) ?? '[]') as Remembered[];
  } catch {
    return [];
  }
};

const write = (name: string, list: Remembered[]) => localStorage.setItem(name, JSON.stringify(list));

export const history = (): Remembered[] => read(HISTORY);
export const saved = (): Remembered[] => read(SAVED);

export function remember(entry: Remembered): void {
  write(HISTORY, [entry, ...history().filter((other) => other.text !== entry.text || other.place !== entry.place)].slice(0, MOST));
}

export function keep(entry: Remembered): void {
  write(SAVED, [entry, ...saved().filter((other) => other.name !== entry.name)]);
}

export function forget(entry: Remembered): void {
  write(SAVED, saved().filter((other) => other.name !== entry.name));
}
