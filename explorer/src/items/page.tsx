// The items of a container: a grid that loads as it scrolls, a filter, and a panel for the one that is open.
import { useEffect, useRef, useState } from 'preact/hooks';
import { type Item, SYSTEM_PROPERTIES, deleteByKey, deleteItem, keyOf, pathSegments, queryItems } from '../api/calls';
import { ApiError } from '../api/client';
import type { ContainerProps } from '../resources/container';
import { handover } from '../state/route';
import * as format from '../ui/format';
import { type Column, Grid } from '../ui/grid';
import { Button, Confirm, Dialog, Empty, Field, Menu, MenuItem, Notice, Spinner, say } from '../ui/parts';
import { columnOf, propertiesOf } from '../ui/values';
import { download } from './download';
import { ItemPanel } from './panel';
import { Upload } from './upload';
import { Icon } from '../ui/icons';

/** The first page is small to load fast; later ones are large, for long scrolls. */
const PAGE = 200;
const PAGE_LATER = 1000;
const COLUMNS_FIRST = 9;

interface Loaded {
  rows: Item[];
  continuation: string | null;
  done: boolean;
  charge: number;
  pages: number;
}

const NOTHING: Loaded = { rows: [], continuation: null, done: false, charge: 0, pages: 0 };

export function ItemsPage({ place, definition, usage, reload, shown }: ContainerProps & { shown: boolean }) {
  const [filter, setFilter] = useState('');
  const [applied, setApplied] = useState('');
  const [loaded, setLoaded] = useState<Loaded>(NOTHING);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const [open, setOpen] = useState<{ item: Item | null; at: number | null; copy?: Item } | null>(null);
  const [checked, setChecked] = useState<Set<Item>>(new Set());
  const [hidden, setHidden] = useState<string[] | null>(null);
  const [widths, setWidths] = useState<Record<string, number>>({});
  const [dialog, setDialog] = useState<'columns' | 'upload' | 'delete' | 'delete-key' | 'download' | null>(null);
  const run = useRef(0);
  const abort = useRef<AbortController | null>(null);

  const load = async (from: Loaded, where: string) => {
    const turn = ++run.current;
    abort.current?.abort();
    const controller = new AbortController();
    abort.current = controller;
    setBusy(true);
    try {
      const query = { query: `SELECT * FROM c${where.trim() ? ` WHERE ${where}` : ''}` };
      const page = await queryItems(place, query, { pageSize: from.pages === 0 ? PAGE : PAGE_LATER, continuation: from.continuation, signal: controller.signal });
      if (turn !== run.current) return;
      setLoaded({
        rows: from.rows.concat(page.rows as Item[]),
        continuation: page.continuation,
        done: page.continuation === null,
        charge: from.charge + page.charge,
        pages: from.pages + 1,
      });
      setError(null);
    } catch (failure) {
      if (turn !== run.current || controller.signal.aborted) return;
      setError((failure as ApiError).message);
      setLoaded((before) => ({ ...before, done: true }));
    }
    setBusy(false);
  };

  const begin = (where: string) => {
    setApplied(where);
    setChecked(new Set());
    setLoaded(NOTHING);
    void load(NOTHING, where);
  };
  const refresh = () => {
    begin(applied);
    reload();
  };

  useEffect(() => {
    const given = handover.value;
    if (shown && given?.filter !== undefined) {
      handover.value = null;
      setFilter(given.filter);
      begin(given.filter);
    } else if (run.current === 0) begin('');
  }, [shown && handover.value]);
  useEffect(() => () => abort.current?.abort(), []);

  // Columns: the id and the key first, then what most items have.
  const keyNames = definition.partitionKey.paths.map((path) => pathSegments(path)[0]!);
  const properties = propertiesOf(loaded.rows).filter((name) => !SYSTEM_PROPERTIES.includes(name));
  const ordered = [...new Set(['id', ...keyNames, ...properties])].filter((name) => name === 'id' || properties.includes(name));
  const all = [...ordered, '_ts', '_etag'];
  const initially = new Set([...ordered.slice(0, COLUMNS_FIRST)]);
  const visible = all.filter((name) => (hidden ? !hidden.includes(name) : initially.has(name)));
  const columns: Column<Item>[] = [
    {
      id: '#check',
      title: 'Chosen',
      width: 38,
      head: (
        <input
          type="checkbox"
          aria-label="Select all loaded items"
          checked={checked.size > 0 && checked.size === loaded.rows.length}
          onChange={(event) => setChecked(event.currentTarget.checked ? new Set(loaded.rows) : new Set())}
        />
      ),
      cell: (row) => (
        <input
          type="checkbox"
          tabIndex={-1}
          aria-label={`Choose ${row.id}`}
          checked={checked.has(row)}
          onChange={() => {
            const next = new Set(checked);
            if (!next.delete(row)) next.add(row);
            setChecked(next);
          }}
        />
      ),
    },
    ...visible.map((name) =>
      name === '_ts'
        ? { id: name, title: '_ts', width: widths[name] ?? 180, cell: (row: Item) => <span class="muted">{row._ts ? format.dateTime(row._ts) : ''}</span> }
        : { ...columnOf<Item>(name, loaded.rows, (row) => row[name], widths[name]), head: keyNames.includes(name) ? <KeyHead name={name} /> : undefined },
    ),
  ];

  const removeChecked = async () => {
    const items = [...checked];
    for (let at = 0; at < items.length; at += 6) await Promise.all(items.slice(at, at + 6).map((item) => deleteItem(place, item.id, keyOf(definition, item))));
    say(`${format.plural(items.length, 'item')} deleted.`);
    setLoaded((before) => ({ ...before, rows: before.rows.filter((row) => !checked.has(row)) }));
    setChecked(new Set());
    if (open?.item && checked.has(open.item)) setOpen(null);
    reload();
  };

  return (
    <div class={`items ${open ? 'with-panel' : ''}`}>
      <div class="toolbar">
        <form
          class="filter"
          onSubmit={(event) => {
            event.preventDefault();
            begin(filter);
          }}
        >
          <label class="filter-label" for="filter">
            WHERE
          </label>
          <input
            id="filter"
            class="code"
            placeholder={`c.${keyNames[0] ?? 'id'} = "…"`}
            value={filter}
            spellcheck={false}
            autocomplete="off"
            aria-describedby={error ? 'filter-error' : undefined}
            onInput={(event) => setFilter(event.currentTarget.value)}
          />
          {applied && (
            <Button
              icon="close"
              kind="quiet"
              label="Clear the filter"
              onClick={() => {
                setFilter('');
                begin('');
              }}
            />
          )}
          <Button type="submit">Filter</Button>
        </form>
        <div class="toolbar-actions">
          {checked.size > 0 && (
            <Button kind="danger" icon="trash" onClick={() => setDialog('delete')}>
              Delete {checked.size}
            </Button>
          )}
          <Button icon="columns" kind="quiet" label="Columns" onClick={() => setDialog('columns')} />
          <Button icon="refresh" kind="quiet" label="Refresh" onClick={refresh} />
          <Button icon="upload" kind="quiet" label="Upload a file" onClick={() => setDialog('upload')} />
          <Menu label="More item actions">
            <MenuItem icon="download" onClick={() => setDialog('download')}>
              Download…
            </MenuItem>
            <MenuItem icon="trash" danger onClick={() => setDialog('delete-key')}>
              Delete all items of a key…
            </MenuItem>
          </Menu>
          <Button icon="plus" kind="primary" onClick={() => setOpen({ item: null, at: null })}>
            New item
          </Button>
        </div>
      </div>
      {error && (
        <div id="filter-error">
          <Notice kind="error">{error}</Notice>
        </div>
      )}
      <div class="items-body">
        <div class="items-grid">
          {loaded.rows.length === 0 && loaded.done && !error ? (
            <Empty title={applied ? 'No item matches the filter.' : 'No items yet.'}>
              {!applied && (
                <div class="row">
                  <Button icon="plus" kind="primary" onClick={() => setOpen({ item: null, at: null })}>
                    New item
                  </Button>
                  <Button icon="upload" onClick={() => setDialog('upload')}>
                    Upload a file
                  </Button>
                </div>
              )}
            </Empty>
          ) : (
            <Grid
              label="Items"
              columns={columns}
              rows={loaded.rows}
              total={applied ? undefined : usage.items}
              selected={open?.at ?? null}
              onEnd={() => !busy && !loaded.done && loaded.pages > 0 && void load(loaded, applied)}
              onOpen={(item, at) => setOpen({ item, at })}
              onResize={(name, width) => setWidths((before) => ({ ...before, [name]: width }))}
              onKey={(event, at) => {
                const item = loaded.rows[at];
                if (!item) return;
                if (event.key === ' ') {
                  event.preventDefault();
                  const next = new Set(checked);
                  if (!next.delete(item)) next.add(item);
                  setChecked(next);
                } else if (event.key === 'Delete') {
                  setChecked(new Set(checked.size ? checked : [item]));
                  setDialog('delete');
                }
              }}
            />
          )}
          <div class="grid-foot" role="status">
            {busy && <Spinner label="Loading items" />}
            <span>
              {format.count(loaded.rows.length)}
              {!loaded.done && ' loaded'}
              {!applied && usage.items > loaded.rows.length && ` of ${format.count(usage.items)}`} {loaded.rows.length === 1 ? 'item' : 'items'}
            </span>
            <span class="muted">{format.units(loaded.charge)} RU</span>
            {checked.size > 0 && <span>{checked.size} chosen</span>}
          </div>
        </div>
        {open && (
          <ItemPanel
            key={open.item ? `${open.item._rid ?? open.item.id}` : `new ${open.copy?.id ?? ''}`}
            place={place}
            definition={definition}
            item={open.item}
            copy={open.copy}
            onClose={() => setOpen(null)}
            onCopy={(item) => setOpen({ item: null, at: null, copy: item })}
            onSaved={(saved, created) => {
              setLoaded((before) => ({
                ...before,
                rows: created ? [saved, ...before.rows] : before.rows.map((row) => (row === open.item ? saved : row)),
              }));
              setOpen({ item: saved, at: created ? 0 : open.at });
              if (created) reload();
            }}
            onDeleted={() => {
              setLoaded((before) => ({ ...before, rows: before.rows.filter((row) => row !== open.item) }));
              setOpen(null);
              reload();
            }}
          />
        )}
      </div>
      {dialog === 'columns' && (
        <Dialog title="Columns" onClose={() => setDialog(null)}>
          <div class="checks">
            {all.map((name) => (
              <label key={name} class="check">
                <input
                  type="checkbox"
                  checked={visible.includes(name)}
                  onChange={(event) => {
                    const now = all.filter((other) => !visible.includes(other));
                    setHidden(event.currentTarget.checked ? now.filter((other) => other !== name) : [...now, name]);
                  }}
                />
                <span class="code">{name}</span>
              </label>
            ))}
          </div>
        </Dialog>
      )}
      {dialog === 'delete' && (
        <Confirm
          title={`Delete ${format.plural(checked.size, 'item')}?`}
          text={<p>They are gone for good: {[...checked].slice(0, 3).map((item) => item.id).join(', ')}{checked.size > 3 ? ' and more' : ''}.</p>}
          action="Delete"
          onConfirm={removeChecked}
          onClose={() => setDialog(null)}
        />
      )}
      {dialog === 'delete-key' && <DeleteByKey place={place} paths={definition.partitionKey.paths} onClose={() => setDialog(null)} onDone={refresh} />}
      {dialog === 'upload' && (
        <Upload
          place={place}
          definition={definition}
          onClose={() => setDialog(null)}
          onDone={refresh}
        />
      )}
      {dialog === 'download' && <Download place={place} filter={applied} total={usage.items} onClose={() => setDialog(null)} />}
    </div>
  );
}

function KeyHead({ name }: { name: string }) {
  return (
    <span class="key-head" title={`${name}: part of the partition key`}>
      <Icon name="key" size={12} />
      {name}
      <span class="visually-hidden"> (partition key)</span>
    </span>
  );
}

/** A key as people type it: JSON, or a bare text. */
export function parseKeyPart(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? text : value;
  } catch {
    return text;
  }
}

function DeleteByKey({ place, paths, onClose, onDone }: { place: ContainerProps['place']; paths: string[]; onClose: () => void; onDone: () => void }) {
  const [parts, setParts] = useState(paths.map(() => ''));
  return (
    <Confirm
      title="Delete all items of a key"
      action="Delete them"
      onClose={onClose}
      onConfirm={async () => {
        await deleteByKey(place, parts.map(parseKeyPart));
        say('The items of the key are being deleted.');
        onDone();
      }}
      text={
        <div class="stack">
          <p>Deletes all items with this partition key. They become invisible at once and are removed in the background, using a tenth of the partition’s throughput.</p>
          {paths.map((path, at) => (
            <Field key={path} label={path} hint={at === 0 ? 'Text without quotes; numbers, true, false and null as in JSON.' : undefined}>
              {(id, hint) => <input id={id} aria-describedby={hint} class="code" value={parts[at]} onInput={(event) => setParts(parts.map((part, index) => (index === at ? event.currentTarget.value : part)))} />}
            </Field>
          ))}
        </div>
      }
    />
  );
}

function Download({ place, filter, total, onClose }: { place: ContainerProps['place']; filter: string; total: number; onClose: () => void }) {
  const [count, setCount] = useState<number | null>(null);
  const [error, setError] = useState<string | null>(null);
  const abort = useRef(new AbortController());
  useEffect(() => () => abort.current.abort(), []);
  const begin = async (kind: 'jsonl' | 'csv') => {
    setCount(0);
    try {
      await download(place, filter, kind, setCount, abort.current.signal);
      onClose();
    } catch (failure) {
      if (!abort.current.signal.aborted) setError((failure as Error).message);
    }
  };
  return (
    <Dialog title="Download items" onClose={onClose}>
      <div class="stack">
        <p>{filter ? 'The items that match the filter.' : `All ${format.plural(total, 'item')}.`} System properties are omitted. For very large containers, <code>orrery export</code> is faster and can be resumed.</p>
        {count === null ? (
          <div class="row">
            <Button icon="download" kind="primary" onClick={() => void begin('jsonl')}>
              JSON lines
            </Button>
            <Button icon="download" onClick={() => void begin('csv')}>
              CSV
            </Button>
          </div>
        ) : (
          <>
            <progress aria-label="Downloading" max={filter ? undefined : total || 1} value={filter ? undefined : count} />
            <p role="status">{format.plural(count, 'item')}</p>
          </>
        )}
        {error && <Notice kind="error">{error}</Notice>}
      </div>
    </Dialog>
  );
}
