// The last minutes of all partitions: the hash space from left to right, time from top (now) to bottom.
import { useEffect, useRef } from 'preact/hooks';
import { isDark } from '../state/theme';

export const COLUMNS = 720;
export const ROWS = 120;
/** A row: the level of each column; 5 = throttled, 6 = the border of a partition. */
export type Row = Uint8Array;

export function rowOf(cells: { from: number; to: number; level: number; throttled: boolean }[]): Row {
  const row = new Uint8Array(COLUMNS);
  for (const cell of cells) {
    const first = Math.round(cell.from * COLUMNS);
    const last = Math.max(first + 1, Math.round(cell.to * COLUMNS));
    row.fill(cell.throttled ? 5 : cell.level, first, last);
    if (cells.length < 200 && first > 0) row[first] = 6;
  }
  return row;
}

function rgb(name: string): [number, number, number] {
  const text = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  // The build shortens `#ffffff` to `#fff`.
  const digits = text.length === 4 ? [...text.slice(1)].map((digit) => digit + digit) : [text.slice(1, 3), text.slice(3, 5), text.slice(5, 7)];
  return digits.map((pair) => Number.parseInt(pair, 16)) as [number, number, number];
}

export function Waterfall({ rows, label }: { rows: Row[]; label: string }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const dark = isDark.value;
  useEffect(() => {
    const context = canvas.current!.getContext('2d')!;
    const image = context.createImageData(COLUMNS, ROWS);
    const colours = ['--heat-0', '--heat-1', '--heat-2', '--heat-3', '--heat-4', '--bad', '--surface'].map(rgb);
    for (let y = 0; y < ROWS; y++) {
      const row = rows[y];
      for (let x = 0; x < COLUMNS; x++) {
        const colour = row ? colours[row[x]!]! : colours[6]!;
        const at = (y * COLUMNS + x) * 4;
        image.data[at] = colour[0];
        image.data[at + 1] = colour[1];
        image.data[at + 2] = colour[2];
        image.data[at + 3] = 255;
      }
    }
    context.putImageData(image, 0, 0);
  }, [rows, dark]);
  return <canvas ref={canvas} class="waterfall" width={COLUMNS} height={ROWS} role="img" aria-label={label} />;
}
