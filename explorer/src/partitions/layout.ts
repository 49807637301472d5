// Positions of hash ranges between 0 and 1, and their heat.

/** The first 48 bits of a bound; hashes of current keys have their two top bits clear, so the space ends at 40. */
function position(bound: string): number | null {
  if (bound === '') return 0;
  if (bound === 'FF') return 1;
  const share = Number.parseInt(bound.slice(0, 12).padEnd(12, '0'), 16) / Number.parseInt('400000000000', 16);
  return share <= 1 ? share : null;
}

export interface Placed {
  id: string;
  from: number;
  to: number;
}

/** Partitions by their ranges; evenly, where bounds are of an older kind. */
export function layOut(partitions: { id: string; min: string; max: string }[]): Placed[] {
  const sorted = [...partitions].sort((a, b) => (a.min < b.min ? -1 : 1));
  const bounds = sorted.map(({ min, max }) => [position(min), position(max)] as const);
  const isEven = bounds.some(([from, to]) => from === null || to === null || to <= from);
  return sorted.map(({ id }, at) => (isEven ? { id, from: at / sorted.length, to: (at + 1) / sorted.length } : { id, from: bounds[at]![0]!, to: bounds[at]![1]! }));
}

export const positionOfKey = (effectiveKey: string): number | null => position(effectiveKey);

/** 0 = idle to 4 = all of its share used. Without a limit the busiest partition sets the scale. */
export function levelOf(used: number, share: number, busiest: number): number {
  const of = share > 0 ? used / share : busiest > 0 ? used / busiest : 0;
  if (of <= 0.01) return 0;
  if (of < 0.35) return 1;
  if (of < 0.7) return 2;
  if (of < 0.95) return 3;
  return 4;
}

export const LEVELS = ['idle', 'up to a third', 'up to two thirds', 'nearly all', 'all of its share'];
