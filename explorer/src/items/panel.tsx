// One item as JSON: edited, compared, saved against its etag, duplicated, deleted.
import { useState } from 'preact/hooks';
import { type ContainerDefinition, type Item, type Place, SYSTEM_PROPERTIES, createItem, deleteItem, explainCharge, keyOf, pathSegments, readItem, replaceItem } from '../api/calls';
import { ApiError } from '../api/client';
import { Editor } from '../editor/editor';
import { partName } from '../query/part-name';
import { isAdmin } from '../state/session';
import * as format from '../ui/format';
import { Button, Confirm, Dialog, Notice, say } from '../ui/parts';

/** The item without system properties. */
function plain(item: Item): string {
  const own = Object.fromEntries(Object.entries(item).filter(([name]) => !SYSTEM_PROPERTIES.includes(name)));
  return JSON.stringify(own, null, 2);
}

/** Formats a text like the other side of a comparison, so that only differences stand out. */
function printed(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function template(definition: ContainerDefinition): string {
  const item: Record<string, unknown> = { id: '' };
  for (const path of definition.partitionKey.paths) {
    let at = item;
    const names = pathSegments(path);
    names.forEach((name, depth) => {
      if (depth === names.length - 1) at[name] ??= '';
      else at = (at[name] ??= {}) as Record<string, unknown>;
    });
  }
  return JSON.stringify(item, null, 2);
}

interface PanelProps {
  place: Place;
  definition: ContainerDefinition;
  /** None for a new item. */
  item: Item | null;
  copy?: Item;
  onClose: () => void;
  onCopy: (item: Item) => void;
  onSaved: (item: Item, created: boolean) => void;
  onDeleted: () => void;
}

export function ItemPanel({ place, definition, item, copy, onClose, onCopy, onSaved, onDeleted }: PanelProps) {
  const [base, setBase] = useState<Item | null>(item);
  const [text, setText] = useState(() => (item ? plain(item) : copy ? plain({ ...copy, id: `${copy.id}-copy` }) : template(definition)));
  const [version, setVersion] = useState(0);
  const [reviewing, setReviewing] = useState(false);
  const [conflict, setConflict] = useState<Item | 'deleted' | null>(null);
  const [deleting, setDeleting] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const [saved, setSaved] = useState<{ charge: number; ms: number } | null>(null);
  const [cost, setCost] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const original = base ? plain(base) : null;
  const changed = text !== original;

  const parse = (): Item | null => {
    try {
      const value: unknown = JSON.parse(text);
      if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error('An item is an object.');
      return value as Item;
    } catch (failure) {
      setError(`This is not valid JSON: ${(failure as Error).message}`);
      return null;
    }
  };

  const save = async (etag: string | null | undefined = base?._etag) => {
    const wanted = parse();
    if (!wanted || busy) return;
    setBusy(true);
    setError(null);
    try {
      if (!base) {
        const created = await createItem(place, wanted, keyOf(definition, wanted));
        say(`${created.body.id} was created for ${format.units(created.charge)} RU.`);
        onSaved(created.body, true);
        return;
      }
      const moved = wanted.id !== base.id || JSON.stringify(keyOf(definition, wanted)) !== JSON.stringify(keyOf(definition, base));
      if (moved) {
        setError('The id and partition key of an item cannot be changed. Duplicate the item under the new ones, then delete this one.');
        setBusy(false);
        return;
      }
      const answer = await replaceItem(place, base.id, wanted, keyOf(definition, base), etag ?? null);
      setBase(answer.body);
      setText(plain(answer.body));
      setSaved({ charge: answer.charge, ms: answer.ms });
      setReviewing(false);
      setConflict(null);
      onSaved(answer.body, false);
    } catch (failure) {
      if (failure instanceof ApiError && failure.status === 412 && base) {
        const theirs = await readItem(place, base.id, keyOf(definition, base)).catch(() => null);
        setConflict(theirs ? theirs.body : 'deleted');
      } else setError((failure as Error).message);
    }
    setBusy(false);
  };

  const adopt = (theirs: Item) => {
    setBase(theirs);
    setText(plain(theirs));
    setVersion(version + 1);
    setConflict(null);
    onSaved(theirs, false);
  };

  const estimate = async () => {
    const wanted = parse();
    if (!wanted) return;
    try {
      const body = base ? { operation: 'replace', id: base.id, item: wanted } : { operation: 'create', item: wanted };
      const explained = await explainCharge(place, { ...body, partitionKey: keyOf(definition, wanted) });
      setCost(`${format.units(explained.charge)} RU: ${explained.parts.filter((part) => part.charge > 0).map((part) => `${partName(part.what).toLowerCase()} ${format.units(part.charge)}`).join(', ')}`);
    } catch (failure) {
      setError((failure as Error).message);
    }
  };

  const remove = async () => {
    const answer = await deleteItem(place, base!.id, keyOf(definition, base!));
    say(`${base!.id} was deleted for ${format.units(answer.charge)} RU.`);
    onDeleted();
  };

  return (
    <section class="panel" aria-label={base ? `Item ${base.id}` : 'New item'}>
      <header class="panel-head">
        <h2 title={base?.id}>{base ? base.id : 'New item'}</h2>
        <div class="row">
          {base && changed && (
            <Button kind="quiet" aria-pressed={reviewing} onClick={() => setReviewing(!reviewing)}>
              {reviewing ? 'Edit' : 'Review changes'}
            </Button>
          )}
          <Button kind="primary" icon="save" disabled={busy || (base !== null && !changed)} onClick={() => void save()}>
            {base ? 'Save' : 'Create'}
          </Button>
          {base && <Button icon="copy" kind="quiet" label="Duplicate" onClick={() => onCopy(base)} />}
          {base && <Button icon="trash" kind="quiet" label="Delete" onClick={() => setDeleting(true)} />}
          <Button icon="close" kind="quiet" label="Close the item" onClick={onClose} />
        </div>
      </header>
      {error && <Notice kind="error">{error}</Notice>}
      <div class="panel-body">
        {reviewing && original !== null ? (
          <Editor key="review" language="json" label="Changes" value={printed(text)} original={original} readOnly document={`${original}${text}`} />
        ) : (
          <Editor key={`edit ${version}`} language="json" label="Item as JSON" value={text} onChange={setText} onSave={() => void save()} document={`edit ${version}`} autofocus={!base} />
        )}
      </div>
      <footer class="panel-foot">
        {base ? (
          <>
            <span title={base._etag}>etag {base._etag?.replaceAll('"', '').slice(-12)}</span>
            {base._ts !== undefined && <span>{format.dateTime(base._ts)}</span>}
            <span>{format.bytes(new TextEncoder().encode(JSON.stringify(base)).length)}</span>
          </>
        ) : (
          <span>An id and the partition key are required.</span>
        )}
        {saved && <span class="good-text">saved, {format.units(saved.charge)} RU</span>}
        {isAdmin() && (
          <Button kind="quiet" class="small" onClick={() => void estimate()}>
            What will it cost?
          </Button>
        )}
        {cost && <span role="status">{cost}</span>}
      </footer>
      {deleting && <Confirm title={`Delete ${base!.id}?`} text={<p>The item is gone for good.</p>} action="Delete" onConfirm={remove} onClose={() => setDeleting(false)} />}
      {conflict && (
        <Dialog
          title="Someone else has changed this item"
          wide
          onClose={() => setConflict(null)}
          footer={
            conflict === 'deleted' ? (
              <Button onClick={() => setConflict(null)}>Keep editing</Button>
            ) : (
              <>
                <Button onClick={() => setConflict(null)}>Keep editing</Button>
                <Button onClick={() => adopt(conflict)}>Use theirs</Button>
                <Button kind="danger" onClick={() => void save(conflict._etag)}>
                  Overwrite with mine
                </Button>
              </>
            )
          }
        >
          <div class="stack">
            {conflict === 'deleted' ? (
              <p>It was deleted after you opened it. To keep your text, duplicate it as a new item.</p>
            ) : (
              <>
                <p>
                  Its etag has changed since you opened it, so saving would overwrite a change that you have not seen. Below is your text compared with the stored one: <span class="mark-good">green</span> is only in yours,{' '}
                  <span class="mark-bad">red</span> only in theirs.
                </p>
                <div class="diff-box">
                  <Editor language="json" label="Your text against theirs" value={printed(text)} original={plain(conflict)} readOnly document={conflict._etag ?? ''} />
                </div>
              </>
            )}
          </div>
        </Dialog>
      )}
    </section>
  );
}
