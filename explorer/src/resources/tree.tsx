// Databases and containers, on the left. Only visible rows are rendered, so a thousand containers are no problem.
import { signal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { closeDatabase, databases, openDatabase, refreshDatabases, resourcesError } from '../state/resources';
import { go, hrefOf, route } from '../state/route';
import { isAdmin } from '../state/session';
import { Icon } from '../ui/icons';
import { Button, Notice } from '../ui/parts';
import { NewContainer, NewDatabase } from './create';

type TreeRow = { kind: 'database'; id: string; open: boolean; count: number | null } | { kind: 'container'; database: string; id: string } | { kind: 'none'; database: string; text: string };

const ROW = 30;
const filter = signal('');
/** Which dialog is open. */
export const creating = signal<{ what: 'database' } | { what: 'container'; database: string | null } | null>(null);

function rows(): TreeRow[] {
  const wanted = filter.value.trim().toLowerCase();
  const found: TreeRow[] = [];
  for (const node of databases.value ?? []) {
    const id = node.resource.id;
    const containers = (node.containers ?? []).filter((container) => !wanted || container.id.toLowerCase().includes(wanted) || id.toLowerCase().includes(wanted));
    if (wanted && containers.length === 0 && !id.toLowerCase().includes(wanted)) continue;
    const open = node.open || wanted !== '';
    found.push({ kind: 'database', id, open, count: node.containers?.length ?? null });
    if (!open) continue;
    if (!node.containers) found.push({ kind: 'none', database: id, text: 'Loading…' });
    else if (node.containers.length === 0) found.push({ kind: 'none', database: id, text: 'No containers' });
    found.push(...containers.map((container) => ({ kind: 'container' as const, database: id, id: container.id })));
  }
  return found;
}

export function Tree({ open, onClose }: { open: boolean; onClose: () => void }) {
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(800);
  const [active, setActive] = useState(0);
  useEffect(() => {
    void refreshDatabases();
  }, []);
  useLayoutEffect(() => {
    const shown = box.current!;
    const watch = new ResizeObserver(() => setHeight(shown.clientHeight));
    watch.observe(shown);
    return () => watch.disconnect();
  }, []);
  // The database of the page that is shown is open.
  const at = route.value;
  const current = at.page === 'database' || at.page === 'container' ? at.database : null;
  useEffect(() => {
    if (current && databases.value?.some((node) => node.resource.id === current && !node.open)) void openDatabase(current);
  }, [current, databases.value === null]);
  useEffect(() => {
    if (filter.value) for (const node of databases.value ?? []) if (!node.containers) void openDatabase(node.resource.id);
  }, [filter.value]);

  const all = rows();
  const first = Math.max(0, Math.floor(top / ROW) - 10);
  const last = Math.min(all.length, Math.ceil((top + height) / ROW) + 10);
  const isCurrent = (row: TreeRow) =>
    row.kind === 'database' ? at.page === 'database' && at.database === row.id : row.kind === 'container' && at.page === 'container' && at.database === row.database && at.container === row.id;
  const openRow = (row: TreeRow) => {
    if (row.kind === 'database') go({ page: 'database', database: row.id });
    if (row.kind === 'container') go({ page: 'container', database: row.database, container: row.id, tab: at.page === 'container' ? at.tab : 'items' });
  };
  const keys = (event: KeyboardEvent) => {
    const row = all[active];
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move) {
      event.preventDefault();
      const next = Math.min(Math.max(0, active + move), all.length - 1);
      setActive(next);
      const shown = box.current!;
      if (next * ROW < shown.scrollTop) shown.scrollTop = next * ROW;
      if ((next + 1) * ROW > shown.scrollTop + height) shown.scrollTop = (next + 1) * ROW - height;
    } else if (event.key === 'Enter' && row) openRow(row);
    else if (event.key === 'ArrowRight' && row?.kind === 'database') void openDatabase(row.id);
    else if (event.key === 'ArrowLeft' && row?.kind === 'database') closeDatabase(row.id);
  };
  return (
    <>
      {open && <div class="veil only-narrow" onClick={onClose} />}
      <nav class={`tree ${open ? 'open' : ''}`} aria-label="Databases and containers">
        <div class="tree-head">
          <div class="search-field">
            <Icon name="search" size={14} />
            <input type="search" placeholder="Filter" aria-label="Filter databases and containers" value={filter.value} onInput={(event) => (filter.value = event.currentTarget.value)} />
          </div>
          <Button icon="refresh" kind="quiet" label="Refresh" onClick={() => void refreshDatabases()} />
          <Button icon="plus" kind="quiet" label="New database or container" onClick={() => (creating.value = databases.value?.length ? { what: 'container', database: current } : { what: 'database' })} />
        </div>
        <div
          ref={box}
          class="tree-rows"
          role="tree"
          aria-label="Databases"
          tabIndex={0}
          aria-activedescendant={all.length > 0 ? `tree-row-${active}` : undefined}
          onKeyDown={keys}
          onScroll={(event) => setTop(event.currentTarget.scrollTop)}
        >
          <div role="none" style={{ height: `${all.length * ROW}px` }}>
            {all.slice(first, last).map((row, offset) => {
              const index = first + offset;
              const place = { transform: `translateY(${index * ROW}px)` };
              if (row.kind === 'none') {
                return (
                  <div key={`n/${row.database}`} role="treeitem" id={`tree-row-${index}`} aria-level={2} class="tree-row tree-none" style={place}>
                    {row.text}
                  </div>
                );
              }
              const database = row.kind === 'database';
              return (
                <div
                  key={database ? `d/${row.id}` : `c/${row.database}/${row.id}`}
                  id={`tree-row-${index}`}
                  role="treeitem"
                  aria-level={database ? 1 : 2}
                  aria-expanded={database ? row.open : undefined}
                  aria-selected={isCurrent(row)}
                  class={`tree-row ${database ? 'tree-database' : 'tree-container'} ${isCurrent(row) ? 'current' : ''} ${index === active ? 'active' : ''}`}
                  style={place}
                  onClick={() => {
                    setActive(index);
                    openRow(row);
                  }}
                >
                  {database && (
                    <span
                      class={`twist ${row.open ? 'down' : ''}`}
                      onClick={(event) => {
                        event.stopPropagation();
                        if (row.open) closeDatabase(row.id);
                        else void openDatabase(row.id);
                      }}
                    >
                      <Icon name="chevron" size={12} />
                    </span>
                  )}
                  <Icon name={database ? 'database' : 'container'} size={15} />
                  <span class="tree-name" title={row.id}>
                    {row.id}
                  </span>
                  {database && row.count !== null && <span class="tree-count">{row.count}</span>}
                </div>
              );
            })}
          </div>
        </div>
        {resourcesError.value && <Notice kind="error">{resourcesError.value}</Notice>}
        {databases.value?.length === 0 && !resourcesError.value && isAdmin() && (
          <p class="tree-empty">
            No databases yet.{' '}
            <a href={hrefOf({ page: 'home' })}>Start here</a>.
          </p>
        )}
      </nav>
      {creating.value?.what === 'database' && <NewDatabase onClose={() => (creating.value = null)} />}
      {creating.value?.what === 'container' && <NewContainer database={creating.value.database} onClose={() => (creating.value = null)} />}
    </>
  );
}
