// The editor component.
import { useEffect, useRef, useState } from 'preact/hooks';
import type { EditorHandle, EditorOptions } from './setup';
import { Spinner } from '../ui/parts';

export interface EditorProps extends EditorOptions {
  faults?: { start: number; end: number; message: string }[];
  /** Identifies the document: another one resets the editor, including its history. */
  document?: string;
  class?: string;
  autofocus?: boolean;
}

export function Editor(props: EditorProps) {
  const box = useRef<HTMLDivElement>(null);
  const handle = useRef<EditorHandle | null>(null);
  const latest = useRef(props);
  latest.current = props;
  const [ready, setReady] = useState(false);
  // Texts that were typed and have not come back as `value` yet. Fast typing runs ahead of the page: a value that comes
  // back late must not replace what was typed since.
  const typed = useRef<string[]>([]);
  // The `value` that the editor was last given. Effects run after painting, so text may be typed between the creation of
  // the editor and its first effect: only another value than this one is news.
  const given = useRef(props.value);
  useEffect(() => {
    let gone = false;
    void import('./setup').then(({ createEditor }) => {
      if (gone) return;
      const now = latest.current;
      typed.current = [];
      given.current = now.value;
      handle.current = createEditor(box.current!, {
        ...now,
        onChange: (value) => {
          typed.current.push(value);
          latest.current.onChange?.(value);
        },
        onRun: now.onRun && ((value) => latest.current.onRun?.(value)),
        onSave: now.onSave && (() => latest.current.onSave?.()),
        known: now.known && { samples: () => latest.current.known?.samples() ?? [], parameters: () => latest.current.known?.parameters() ?? [] },
      });
      setReady(true);
      if (now.autofocus) handle.current.view.focus();
    });
    return () => {
      gone = true;
      handle.current?.destroy();
      handle.current = null;
    };
  }, [props.document, props.language, props.original]);
  useEffect(() => {
    if (!handle.current || given.current === props.value) return;
    given.current = props.value;
    const known = typed.current.indexOf(props.value);
    if (known >= 0) typed.current.splice(0, known + 1);
    else {
      typed.current = [];
      handle.current.setValue(props.value);
    }
  }, [props.value, ready]);
  useEffect(() => handle.current?.mark(props.faults ?? []), [props.faults, ready]);
  return (
    <div class={`editor ${props.class ?? ''}`}>
      {!ready && (
        <div class="loading-part">
          <Spinner label="Loading the editor" />
        </div>
      )}
      <div ref={box} class="editor-host" />
    </div>
  );
}
