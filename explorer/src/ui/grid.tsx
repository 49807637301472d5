// A virtualised grid: hundreds of thousands of rows scroll like ten.
import type { ComponentChildren } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';

export interface Column<R> {
  id: string;
  title: string;
  width: number;
  numeric?: boolean;
  cell: (row: R) => ComponentChildren;
  head?: ComponentChildren;
}

const ROW = 30;
const AHEAD = 12;

export interface GridProps<R> {
  label: string;
  columns: Column<R>[];
  rows: R[];
  /** How many there are in all, if it is known. */
  total?: number;
  /** Called when the last rows come into sight. */
  onEnd?: () => void;
  onOpen?: (row: R, at: number) => void;
  onKey?: (event: KeyboardEvent, at: number) => void;
  selected?: number | null;
  onResize?: (column: string, width: number) => void;
}

export function Grid<R>({ label, columns, rows, total, onEnd, onOpen, onKey, selected, onResize }: GridProps<R>) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(600);
  const [active, setActive] = useState(0);
  useLayoutEffect(() => {
    const shown = box.current!;
    const watch = new ResizeObserver(() => setHeight(shown.clientHeight));
    watch.observe(shown);
    return () => watch.disconnect();
  }, []);
  const first = Math.max(0, Math.floor(top / ROW) - AHEAD);
  const last = Math.min(rows.length, Math.ceil((top + height) / ROW) + AHEAD);
  useEffect(() => {
    if (onEnd && last >= rows.length - AHEAD) onEnd();
  }, [last, rows.length]);
  useEffect(() => {
    if (selected !== null && selected !== undefined) setActive(selected);
  }, [selected]);
  const template = `${columns.map((column) => `${column.width}px`).join(' ')} minmax(0, 1fr)`;
  const width = columns.reduce((sum, column) => sum + column.width, 0);

  const keys = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(height / ROW) - 2);
    const to = { ArrowDown: active + 1, ArrowUp: active - 1, PageDown: active + page, PageUp: active - page, Home: 0, End: rows.length - 1 }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      const next = Math.min(Math.max(0, to), rows.length - 1);
      setActive(next);
      const shown = box.current!;
      if (next * ROW < shown.scrollTop) shown.scrollTop = next * ROW;
      else if ((next + 1) * ROW > shown.scrollTop + height - ROW - 4) shown.scrollTop = (next + 2) * ROW - height + 4;
      return;
    }
    if (event.key === 'Enter' && rows[active] !== undefined && event.target === box.current) {
      event.preventDefault();
      onOpen?.(rows[active]!, active);
    } else onKey?.(event, active);
  };

  const resize = (column: Column<R>) => (event: PointerEvent) => {
    event.preventDefault();
    const handle = event.currentTarget as HTMLElement;
    handle.setPointerCapture(event.pointerId);
    const from = event.clientX;
    const move = (moved: PointerEvent) => onResize?.(column.id, Math.max(48, column.width + moved.clientX - from));
    handle.addEventListener('pointermove', move);
    handle.addEventListener('pointerup', () => handle.removeEventListener('pointermove', move), { once: true });
  };

  return (
    <div
      ref={box}
      class="grid"
      role="grid"
      aria-label={label}
      aria-rowcount={(total ?? rows.length) + 1}
      aria-colcount={columns.length}
      tabIndex={0}
      aria-activedescendant={rows.length > 0 && active >= first && active < last ? `grid-row-${active}` : undefined}
      onKeyDown={keys}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
    >
      <div class="grid-row grid-head" role="row" aria-rowindex={1} style={{ gridTemplateColumns: template, minWidth: `max(100%, ${width}px)` }}>
        {columns.map((column) => (
          <div key={column.id} role="columnheader" class={`grid-cell ${column.numeric ? 'numeric' : ''}`}>
            {column.head ?? <span title={column.title}>{column.title}</span>}
            {onResize && <span class="grid-resize" onPointerDown={resize(column)} />}
          </div>
        ))}
      </div>
      <div class="grid-body" role="rowgroup" style={{ height: `${rows.length * ROW}px`, minWidth: `${width}px` }}>
        {rows.slice(first, last).map((row, offset) => {
          const at = first + offset;
          return (
            <div
              key={at}
              id={`grid-row-${at}`}
              role="row"
              aria-rowindex={at + 2}
              aria-selected={at === selected}
              class={`grid-row ${at === active ? 'active' : ''} ${at % 2 ? 'odd' : ''}`}
              style={{ gridTemplateColumns: template, transform: `translateY(${at * ROW}px)` }}
              onClick={(event) => {
                if ((event.target as HTMLElement).closest('input,a,button')) return;
                setActive(at);
                onOpen?.(row, at);
              }}
            >
              {columns.map((column) => (
                <div key={column.id} role="gridcell" class={`grid-cell ${column.numeric ? 'numeric' : ''}`}>
                  {column.cell(row)}
                </div>
              ))}
            </div>
          );
        })}
      </div>
    </div>
  );
}
