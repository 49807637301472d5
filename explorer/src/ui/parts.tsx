// Components shared by all pages.
import type { ButtonHTMLAttributes, ComponentChildren } from 'preact';
import { signal } from '@preact/signals';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import { Icon, type IconName } from './icons';

type ButtonProps = {
  icon?: IconName;
  kind?: 'plain' | 'primary' | 'danger' | 'quiet';
  label?: string;
  children?: ComponentChildren;
} & Omit<ButtonHTMLAttributes<HTMLButtonElement>, "icon" | "label">;

/** A button; with `label` and no children it shows its icon alone. */
export function Button({ icon, kind = 'plain', label, children, class: extra, ...rest }: ButtonProps) {
  return (
    <button type="button" {...rest} class={`button ${kind} ${children ? '' : 'icon-only'} ${(extra as string | undefined) ?? ''}`} aria-label={children ? undefined : label} title={label}>
      {icon && <Icon name={icon} />}
      {children && <span>{children}</span>}
    </button>
  );
}

/** A heading, right-aligned above numbers. */
export type Column = string | { numeric: string };

/** A table that scrolls inside its box, also by keyboard. */
export function Table({ label, columns, children }: { label: string; columns: Column[]; children: ComponentChildren }) {
  return (
    <div class="table-box" role="region" aria-label={label} tabIndex={0}>
      <table class="table">
        <thead>
          <tr>
            {columns.map((column) => (typeof column === 'string' ? <th key={column}>{column}</th> : <th key={column.numeric} class="numeric">{column.numeric}</th>))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </div>
  );
}

export function Field({ label, hint, error, children }: { label: string; hint?: ComponentChildren; error?: string | null; children: (id: string, described: string) => ComponentChildren }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(id, `${id}-hint`)}
      {(hint || error) && (
        <p id={`${id}-hint`} class={error ? 'field-error' : 'hint'}>
          {error ?? hint}
        </p>
      )}
    </div>
  );
}

/** A modal dialog: the browser keeps the focus in it and closes it with Escape. */
export function Dialog({ title, onClose, children, wide, footer }: { title: string; onClose: () => void; children: ComponentChildren; wide?: boolean; footer?: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const shown = dialog.current!;
    const before = document.activeElement as HTMLElement | null;
    if (!shown.open) shown.showModal();
    return () => {
      shown.close();
      before?.focus?.();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={wide ? 'wide' : ''}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onMouseDown={(event) => event.target === dialog.current && onClose()}
    >
      <div class="dialog-box">
        <header>
          <h2 id={id}>{title}</h2>
          <Button icon="close" kind="quiet" label="Close" onClick={onClose} />
        </header>
        <div class="dialog-body">{children}</div>
        {footer && <footer>{footer}</footer>}
      </div>
    </dialog>
  );
}

/** A confirmation dialog. With `typed`, the name has to be typed. */
export function Confirm({ title, text, action, typed, onConfirm, onClose }: { title: string; text: ComponentChildren; action: string; typed?: string; onConfirm: () => Promise<void> | void; onClose: () => void }) {
  const [name, setName] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const confirm = async () => {
    setBusy(true);
    try {
      await onConfirm();
      onClose();
    } catch (failure) {
      setError((failure as Error).message);
      setBusy(false);
    }
  };
  return (
    <Dialog
      title={title}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button kind="danger" disabled={busy || (typed !== undefined && name !== typed)} onClick={confirm}>
            {action}
          </Button>
        </>
      }
    >
      <div class="stack">
        <div>{text}</div>
        {typed !== undefined && (
          <Field label={`Type “${typed}” to confirm`}>{(id) => <input id={id} value={name} autocomplete="off" onInput={(event) => setName(event.currentTarget.value)} />}</Field>
        )}
        {error && <Notice kind="error">{error}</Notice>}
      </div>
    </Dialog>
  );
}

export function Notice({ kind = 'info', children }: { kind?: 'info' | 'error' | 'warning' | 'good'; children: ComponentChildren }) {
  const icon: IconName = kind === 'good' ? 'check' : kind === 'info' ? 'info' : 'warning';
  return (
    <div class={`notice ${kind}`} role={kind === 'error' ? 'alert' : undefined}>
      <Icon name={icon} />
      <div>{children}</div>
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

export function Spinner({ label = 'Loading' }: { label?: string }) {
  return (
    <span class="spinner" role="status">
      <span class="visually-hidden">{label}</span>
    </span>
  );
}

/** Tabs inside a page; arrow keys move between them. */
export function Tabs<T extends string>({ label, tabs, value, onChange, children }: { label: string; tabs: { id: T; title: string; badge?: string }[]; value: T; onChange: (tab: T) => void; children?: ComponentChildren }) {
  const move = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const at = tabs.findIndex((tab) => tab.id === value);
    const next = tabs[(at + step + tabs.length) % tabs.length]!;
    onChange(next.id);
    (event.currentTarget as HTMLElement).querySelector<HTMLElement>(`[data-tab="${next.id}"]`)?.focus();
  };
  return (
    <div class="tabs">
      <div role="tablist" aria-label={label} onKeyDown={move}>
        {tabs.map((tab) => (
          <button key={tab.id} type="button" role="tab" data-tab={tab.id} aria-selected={tab.id === value} tabIndex={tab.id === value ? 0 : -1} onClick={() => onChange(tab.id)}>
            {tab.title}
            {tab.badge !== undefined && <span class="badge">{tab.badge}</span>}
          </button>
        ))}
      </div>
      {children}
    </div>
  );
}

interface Toast {
  id: number;
  text: string;
  kind: 'good' | 'error';
}

const toasts = signal<Toast[]>([]);
let toastNumber = 0;

/** Shows a toast for a few seconds. */
export function say(text: string, kind: Toast['kind'] = 'good'): void {
  const toast = { id: ++toastNumber, text, kind };
  toasts.value = [...toasts.value, toast];
  setTimeout(() => (toasts.value = toasts.value.filter((other) => other.id !== toast.id)), kind === 'error' ? 8000 : 4000);
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((toast) => (
        <div key={toast.id} class={`toast ${toast.kind}`}>
          <Icon name={toast.kind === 'good' ? 'check' : 'warning'} />
          {toast.text}
        </div>
      ))}
    </div>
  );
}

/** Loads something, and reloads it when its inputs change. */
export function useLoaded<T>(load: () => Promise<T>, inputs: unknown[]): { value: T | null; error: string | null; reload: () => void } {
  const [state, setState] = useState<{ value: T | null; error: string | null }>({ value: null, error: null });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    let current = true;
    load().then(
      (value) => current && setState({ value, error: null }),
      (error: Error) => current && setState((before) => ({ value: before.value, error: error.message })),
    );
    return () => {
      current = false;
    };
  }, [...inputs, turn]);
  return { ...state, reload: () => setTurn((before) => before + 1) };
}

/** Runs periodically while the page is visible, without overlapping calls. */
export function useEvery(ms: number, work: () => Promise<void>, inputs: unknown[]): void {
  useEffect(() => {
    let stopped = false;
    let timer = 0;
    const turn = async () => {
      if (!document.hidden) await work().catch(() => {});
      if (!stopped) timer = window.setTimeout(turn, ms);
    };
    void turn();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, inputs);
}

export function Menu({ label, icon = 'more', children }: { label: string; icon?: IconName; children: ComponentChildren }) {
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const away = (event: Event) => {
      if (event instanceof KeyboardEvent ? event.key === 'Escape' : !box.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener('mousedown', away);
    document.addEventListener('keydown', away);
    return () => {
      document.removeEventListener('mousedown', away);
      document.removeEventListener('keydown', away);
    };
  }, [open]);
  return (
    <div class="menu" ref={box}>
      <Button icon={icon} label={label} kind="quiet" aria-expanded={open} aria-haspopup="true" onClick={() => setOpen(!open)} />
      {open && (
        <div class="menu-box" onClick={() => setOpen(false)}>
          {children}
        </div>
      )}
    </div>
  );
}

export function MenuItem({ icon, onClick, children, danger }: { icon: IconName; onClick: () => void; children: ComponentChildren; danger?: boolean }) {
  return (
    <button type="button" class={`menu-item ${danger ? 'danger' : ''}`} onClick={onClick}>
      <Icon name={icon} /> {children}
    </button>
  );
}
