// An editor as a part of a page.
import { useEffect, useRef } from 'preact/hooks';
import type { EditorHandle, EditorOptions } from './setup';
import { Spinner } from '../ui/parts';
import { useState } from 'preact/hooks';

export interface EditorProps extends EditorOptions {
  faults?: { start: number; end: number; message: string }[];
  /** Another document: everything begins anew, its history too. */
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
  useEffect(() => {
    let gone = false;
    void import('./setup').then(({ createEditor }) => {
      if (gone) return;
      const now = latest.current;
      handle.current = createEditor(box.current!, {
        ...now,
        onChange: (value) => latest.current.onChange?.(value),
        onRun: now.onRun && (() => latest.current.onRun?.()),
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
  useEffect(() => handle.current?.setValue(props.value), [props.value, ready]);
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
