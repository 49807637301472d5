// Editors: JSON, queries, JavaScript. This module and what it imports is loaded when the first editor is shown.
//
// Each editor lives in a shadow root: its style sheets are then adopted rather than written into the page, which a
// strict content security policy would refuse.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { javascript } from '@codemirror/lang-javascript';
import { json, jsonParseLinter } from '@codemirror/lang-json';
import { HighlightStyle, bracketMatching, foldGutter, foldKeymap, indentOnInput, syntaxHighlighting } from '@codemirror/language';
import { type Diagnostic, linter, lintGutter, setDiagnostics } from '@codemirror/lint';
import { unifiedMergeView } from '@codemirror/merge';
import { highlightSelectionMatches, search, searchKeymap } from '@codemirror/search';
import { Compartment, EditorState, type Extension } from '@codemirror/state';
import { EditorView, drawSelection, highlightActiveLine, highlightSpecialChars, keymap, lineNumbers, placeholder } from '@codemirror/view';
import { tags } from '@lezer/highlight';
import { type Known, sql } from './sql';

export type Language = 'json' | 'sql' | 'javascript';

export interface EditorOptions {
  language: Language;
  label: string;
  value: string;
  readOnly?: boolean;
  placeholder?: string;
  /** Shown against this text. */
  original?: string;
  known?: Known;
  onChange?: (value: string) => void;
  /** Ctrl-Enter. */
  /** With the text as it is now, which the page may not have rendered yet. */
  onRun?: (value: string) => void;
  /** Ctrl-S. */
  onSave?: () => void;
}

export interface EditorHandle {
  view: EditorView;
  setValue: (value: string) => void;
  mark: (faults: { start: number; end: number; message: string }[]) => void;
  destroy: () => void;
}

const look = EditorView.theme({
  '&': { height: '100%', fontSize: '13px', color: 'var(--text)', backgroundColor: 'var(--field)' },
  '&.cm-focused': { outline: 'none' },
  '.cm-scroller': { fontFamily: 'var(--mono)', lineHeight: '1.55', overflow: 'auto' },
  '.cm-content': { caretColor: 'var(--text)', padding: '8px 0' },
  '.cm-cursor': { borderLeftColor: 'var(--text)', borderLeftWidth: '2px' },
  '.cm-gutters': { backgroundColor: 'var(--field)', color: 'var(--faint)', border: 'none', paddingLeft: '4px' },
  '.cm-activeLine': { backgroundColor: 'var(--line-now)' },
  '.cm-activeLineGutter': { backgroundColor: 'transparent', color: 'var(--text)' },
  '&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground, ::selection': { backgroundColor: 'var(--selection) !important' },
  '.cm-matchingBracket': { backgroundColor: 'var(--selection)', outline: '1px solid var(--border-strong)' },
  '.cm-tooltip': { backgroundColor: 'var(--raised)', border: '1px solid var(--border-strong)', borderRadius: '6px', boxShadow: 'var(--shadow)', color: 'var(--text)', overflow: 'hidden' },
  '.cm-tooltip-autocomplete > ul': { fontFamily: 'var(--mono)', maxHeight: '260px' },
  '.cm-tooltip-autocomplete > ul > li': { padding: '3px 10px 3px 6px' },
  '.cm-tooltip-autocomplete > ul > li[aria-selected]': { backgroundColor: 'var(--accent)', color: 'var(--on-accent)' },
  '.cm-tooltip-autocomplete > ul > li[aria-selected] .cm-completionDetail': { color: 'var(--on-accent)' },
  '.cm-completionDetail': { color: 'var(--muted)', fontStyle: 'normal', marginLeft: '8px' },
  '.cm-completionMatchedText': { textDecoration: 'none', fontWeight: '700' },
  '.cm-completionInfo': { padding: '8px 10px', maxWidth: '320px', fontFamily: 'var(--sans)', fontSize: '13px', overflow: 'visible' },
  '.cm-tooltip-lint': { fontFamily: 'var(--sans)', fontSize: '13px', maxWidth: '420px' },
  '.cm-diagnostic-error': { borderLeftColor: 'var(--bad)' },
  '.cm-lintRange-error': { backgroundImage: 'none', textDecoration: 'underline wavy var(--bad)', textUnderlineOffset: '4px', backgroundColor: 'var(--bad-soft)' },
  '.cm-panels': { backgroundColor: 'var(--raised)', color: 'var(--text)', borderColor: 'var(--border)' },
  '.cm-panels input, .cm-panels button': { font: 'inherit', color: 'var(--text)', backgroundColor: 'var(--field)', border: '1px solid var(--border-strong)', borderRadius: '4px', backgroundImage: 'none' },
  '.cm-placeholder': { color: 'var(--muted)' },
  '.cm-foldPlaceholder': { backgroundColor: 'var(--hover)', border: 'none', color: 'var(--muted)', padding: '0 6px' },
  '&.cm-merge-b .cm-changedText, .cm-changedText': { background: 'var(--good-soft) !important' },
  '.cm-changedLine, .cm-insertedLine': { backgroundColor: 'var(--good-soft) !important' },
  '.cm-deletedChunk': { backgroundColor: 'var(--bad-soft) !important', paddingLeft: '6px' },
  '.cm-deletedChunk .cm-deletedText': { background: 'var(--bad-soft) !important' },
});

const colours = HighlightStyle.define([
  { tag: tags.keyword, color: 'var(--code-keyword)', fontWeight: '600' },
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: 'var(--code-property)' },
  { tag: tags.string, color: 'var(--code-string)' },
  { tag: tags.number, color: 'var(--code-number)' },
  { tag: [tags.bool, tags.null, tags.atom], color: 'var(--code-constant)' },
  { tag: [tags.function(tags.variableName), tags.standard(tags.name)], color: 'var(--code-function)' },
  { tag: tags.comment, color: 'var(--muted)', fontStyle: 'italic' },
  { tag: tags.operator, color: 'var(--muted)' },
]);

function languageOf(options: EditorOptions): Extension {
  switch (options.language) {
    case 'json':
      return options.readOnly ? json() : [json(), linter(jsonParseLinter(), { delay: 300 }), lintGutter()];
    case 'javascript':
      return javascript();
    case 'sql':
      return sql(options.known ?? { samples: () => [], parameters: () => [] });
  }
}

export function createEditor(parent: HTMLElement, options: EditorOptions): EditorHandle {
  const root = parent.shadowRoot ?? parent.attachShadow({ mode: 'open' });
  const mount = document.createElement('div');
  mount.style.height = '100%';
  root.replaceChildren(mount);
  const editable = new Compartment();
  let setting = false;
  const run = (action: (() => void) | undefined) => () => {
    action?.();
    return action !== undefined;
  };
  const view = new EditorView({
    root,
    parent: mount,
    state: EditorState.create({
      doc: options.value,
      extensions: [
        keymap.of([
          { key: 'Mod-Enter', run: (view) => (options.onRun?.(view.state.doc.toString()), options.onRun !== undefined), preventDefault: true },
          { key: 'Mod-s', run: run(options.onSave), preventDefault: true },
        ]),
        lineNumbers(),
        foldGutter(),
        highlightSpecialChars(),
        history(),
        drawSelection(),
        indentOnInput(),
        bracketMatching(),
        closeBrackets(),
        autocompletion({ icons: true }),
        highlightActiveLine(),
        highlightSelectionMatches(),
        search({ top: true }),
        // Tab moves on, as everywhere in the page, unless the user is in the middle of typing code.
        keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...searchKeymap, ...historyKeymap, ...foldKeymap, ...completionKeymap, ...(options.language === 'javascript' ? [indentWithTab] : [])]),
        languageOf(options),
        syntaxHighlighting(colours),
        look,
        EditorView.lineWrapping,
        EditorView.contentAttributes.of({ 'aria-label': options.label, tabindex: '0' }),
        options.placeholder ? placeholder(options.placeholder) : [],
        editable.of([EditorState.readOnly.of(options.readOnly ?? false), EditorView.editable.of(!options.readOnly)]),
        options.original !== undefined ? unifiedMergeView({ original: options.original, mergeControls: false, gutter: true, collapseUnchanged: { margin: 3, minSize: 6 } }) : [],
        EditorView.updateListener.of((update) => {
          if (update.docChanged && !setting) options.onChange?.(update.state.doc.toString());
        }),
      ],
    }),
  });
  return {
    view,
    setValue: (value) => {
      if (value === view.state.doc.toString()) return;
      setting = true;
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: value } });
      setting = false;
    },
    mark: (faults) => {
      const length = view.state.doc.length;
      const clamp = (at: number) => Math.min(Math.max(0, at), length);
      const diagnostics: Diagnostic[] = faults.map((fault) => ({ from: clamp(fault.start), to: Math.max(clamp(fault.end), clamp(fault.start)), severity: 'error', message: fault.message }));
      view.dispatch(setDiagnostics(view.state, diagnostics));
    },
    destroy: () => view.destroy(),
  };
}
