// Formats figures.

const whole = new Intl.NumberFormat('en');
const decimals = new Intl.NumberFormat('en', { minimumFractionDigits: 2, maximumFractionDigits: 2 });

export const count = (value: number): string => whole.format(Math.round(value));

/** `1.2 K`, `3.4 M`. */
export function short(value: number): string {
  const size = Math.abs(value);
  for (const [limit, unit] of [[1e9, 'G'], [1e6, 'M'], [1e4, 'K']] as const) {
    if (size >= limit) return `${(value / (limit === 1e4 ? 1e3 : limit)).toFixed(1)}${unit}`;
  }
  return size < 10 && !Number.isInteger(value) ? value.toFixed(1) : whole.format(Math.round(value));
}

export const units = (value: number): string => decimals.format(value);

export function bytes(value: number): string {
  if (value < 1024) return `${Math.round(value)} B`;
  for (const [limit, unit] of [[1024 ** 4, 'TB'], [1024 ** 3, 'GB'], [1024 ** 2, 'MB'], [1024, 'KB']] as const) {
    if (value >= limit) return `${(value / limit).toFixed(value / limit < 10 ? 1 : 0)} ${unit}`;
  }
  return '';
}

export function duration(ms: number): string {
  if (ms < 1) return `${ms.toFixed(2)} ms`;
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} days ${hours % 24} h`;
}

export const percent = (part: number): string => `${(part * 100).toFixed(part < 0.1 && part > 0 ? 1 : 0)} %`;

export const plural = (value: number, one: string, many = `${one}s`): string => `${count(value)} ${value === 1 ? one : many}`;

const clockTime = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' });
export const timeOfDay = (ms: number): string => clockTime.format(ms);

export const dateTime = (seconds: number): string => new Date(seconds * 1000).toISOString().replace('T', ' ').replace('.000Z', ' UTC');
