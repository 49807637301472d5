// A file of items, written with progress.
import { useEffect, useRef, useState } from 'preact/hooks';
import type { ContainerDefinition, Place } from '../api/calls';
import * as format from '../ui/format';
import { Button, Dialog, Field, Notice } from '../ui/parts';
import { itemsOf } from './files';
import { type LoadProgress, loadItems } from './load';

export function Upload({ place, definition, onClose, onDone }: { place: Place; definition: ContainerDefinition; onClose: () => void; onDone: () => void }) {
  const [file, setFile] = useState<File | null>(null);
  const [read, setRead] = useState(0);
  const [progress, setProgress] = useState<LoadProgress | null>(null);
  const [state, setState] = useState<'choosing' | 'running' | 'done'>('choosing');
  const [error, setError] = useState<string | null>(null);
  const abort = useRef(new AbortController());
  useEffect(() => () => abort.current.abort(), []);
  const begin = async () => {
    setState('running');
    try {
      setProgress(await loadItems(place, definition, itemsOf(file!, setRead), setProgress, abort.current.signal));
    } catch (failure) {
      if (!abort.current.signal.aborted) setError((failure as Error).message);
    }
    setState('done');
    onDone();
  };
  return (
    <Dialog
      title={`Upload to ${place.container}`}
      onClose={onClose}
      footer={
        state === 'choosing' ? (
          <>
            <Button onClick={onClose}>Cancel</Button>
            <Button kind="primary" icon="upload" disabled={!file} onClick={() => void begin()}>
              Upload
            </Button>
          </>
        ) : (
          <Button onClick={onClose}>{state === 'done' ? 'Close' : 'Stop'}</Button>
        )
      }
    >
      <div class="stack">
        {state === 'choosing' && (
          <Field label="File" hint="JSON lines, a JSON array, or CSV with a header. Items with an existing id are replaced; items without an id get one.">
            {(id, hint) => <input id={id} aria-describedby={hint} type="file" accept=".json,.jsonl,.ndjson,.csv,.tsv" onChange={(event) => setFile(event.currentTarget.files?.[0] ?? null)} />}
          </Field>
        )}
        {file && state !== 'choosing' && <progress aria-label="Uploading" max={file.size || 1} value={state === 'done' && !error ? file.size || 1 : read} />}
        {progress && (
          <dl class="pairs" aria-live="polite">
            <dt>Written</dt>
            <dd>{format.plural(progress.done, 'item')}</dd>
            <dt>Charged</dt>
            <dd>{format.units(progress.charge)} RU</dd>
            {progress.throttled > 0 && (
              <>
                <dt>Throttled</dt>
                <dd>{format.count(progress.throttled)} times (429): the container’s throughput sets the pace</dd>
              </>
            )}
            {progress.failed > 0 && (
              <>
                <dt>Failed</dt>
                <dd>{format.plural(progress.failed, 'item')}</dd>
              </>
            )}
          </dl>
        )}
        {progress && progress.failures.length > 0 && (
          <Notice kind="error">
            {progress.failures.map((failure) => (
              <div key={failure}>{failure}</div>
            ))}
          </Notice>
        )}
        {error && <Notice kind="error">{error}</Notice>}
        {state === 'done' && !error && progress?.failed === 0 && <Notice kind="good">All items are written.</Notice>}
      </div>
    </Dialog>
  );
}
