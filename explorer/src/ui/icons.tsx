// Line icons on a 16 grid. They always have a label or an aria-label.
const PATHS = {
  database: 'M3 4c0-1.1 2.2-2 5-2s5 .9 5 2-2.2 2-5 2-5-.9-5-2Zm0 0v8c0 1.1 2.2 2 5 2s5-.9 5-2V4M3 8c0 1.1 2.2 2 5 2s5-.9 5-2',
  container: 'M2.5 5 8 2l5.5 3v6L8 14l-5.5-3V5Zm0 0L8 8m0 0 5.5-3M8 8v6',
  chevron: 'm6 4 4 4-4 4',
  search: 'M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10Zm3.6-1.4L14 14',
  plus: 'M8 3v10M3 8h10',
  close: 'm4 4 8 8m0-8-8 8',
  refresh: 'M13 8a5 5 0 1 1-1.5-3.5M13 2v3h-3',
  play: 'M5 3v10l8-5-8-5Z',
  stop: 'M4 4h8v8H4z',
  trash: 'M3 4h10M6 4V2.5h4V4m-5.5 0 .5 9.5h6l.5-9.5M7 6.5v4.5m2-4.5v4.5',
  copy: 'M5.5 5.5v-3h8v8h-3m-8-5h8v8h-8v-8Z',
  save: 'M3 3h8l2 2v8H3V3Zm2 0v3.5h5V3M5 13V9.5h6V13',
  upload: 'M8 11V3m0 0L5 6m3-3 3 3M3 11v2h10v-2',
  download: 'M8 3v8m0 0L5 8m3 3 3-3M3 11v2h10v-2',
  sun: 'M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6Zm0-9.5V3m0 10v1.5M1.5 8H3m10 0h1.5M3.4 3.4l1 1m7.2 7.2 1 1m0-9.2-1 1m-7.2 7.2-1 1',
  moon: 'M13.5 9.5A5.8 5.8 0 0 1 6.5 2.5a5.8 5.8 0 1 0 7 7Z',
  server: 'M2.5 2.5h11v4h-11zm0 7h11v4h-11zM5 4.5h.01M5 11.5h.01',
  menu: 'M2.5 4h11m-11 4h11m-11 4h11',
  columns: 'M2.5 3h11v10h-11zM6.2 3v10m3.6-10v10',
  more: 'M3.5 8h.01M8 8h.01M12.5 8h.01',
  split: 'M8 14V9M8 9 3.5 4.5M8 9l4.5-4.5M3.5 8V4.5H7m5.5 3.5V4.5H9',
  warning: 'M8 2 1.5 13.5h13L8 2Zm0 4.5v3.5m0 2v.01',
  info: 'M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12Zm0-6.5V11m0-6v.01',
  check: 'm3 8.5 3.5 3.5L13 4.5',
  history: 'M2.5 8a5.5 5.5 0 1 0 1.6-3.9L2.5 5.7m0-3.2v3.2h3.2M8 5v3.2l2.2 1.3',
  star: 'm8 2 1.8 3.8 4.2.6-3 2.9.7 4.2L8 11.5l-3.7 2 .7-4.2-3-2.9 4.2-.6L8 2Z',
  user: 'M8 8a2.75 2.75 0 1 0 0-5.5A2.75 2.75 0 0 0 8 8Zm-5.5 6c.5-2.8 2.7-4 5.5-4s5 1.2 5.5 4',
  key: 'M10.5 8.5a3 3 0 1 0-2.8-2L2.5 11.7v1.8h2.2v-1.6h1.6v-1.6l1.4-1.4c.8.4 1.8.6 2.8-.4ZM11 5v.01',
  out: 'M9.5 11v2.5h-7v-11h7V5M6 8h8m0 0-2.5-2.5M14 8l-2.5 2.5',
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" width={size} height={size} viewBox="0 0 16 16" fill="none" stroke="currentColor" stroke-width="1.4" stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}

/** An orrery: rings and planets. */
export function Logo({ size = 26 }: { size?: number }) {
  return (
    <svg class="logo" width={size} height={size} viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <g fill="none" stroke="var(--brass)" stroke-width="1.6">
        <circle cx="16" cy="16" r="12.5" opacity="0.45" />
        <circle cx="16" cy="16" r="7" opacity="0.8" />
      </g>
      <circle cx="16" cy="16" r="3" fill="var(--brass)" />
      <circle cx="26.8" cy="9.7" r="2.6" fill="var(--accent)" />
      <circle cx="10.2" cy="20" r="2" fill="var(--hot)" />
    </svg>
  );
}
