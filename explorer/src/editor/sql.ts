// The query language for the editor: colours, and what can come next.
import { type Completion, type CompletionContext, type CompletionResult, snippetCompletion } from '@codemirror/autocomplete';
import { LanguageSupport, StreamLanguage } from '@codemirror/language';
import list from './functions.json';

export const KEYWORDS = [
  'SELECT', 'VALUE', 'DISTINCT', 'TOP', 'FROM', 'AS', 'IN', 'JOIN', 'WHERE', 'AND', 'OR', 'NOT', 'BETWEEN', 'LIKE', 'ESCAPE', 'EXISTS', 'ARRAY', 'GROUP', 'BY', 'ORDER', 'RANK', 'ASC', 'DESC', 'OFFSET', 'LIMIT', 'UDF', 'ALL', 'FIRST', 'LAST',
];
const CONSTANTS = ['true', 'false', 'null', 'undefined'];
const functions = list as [string, string, string][];
const keywords = new Set(KEYWORDS);
const names = new Set(functions.map(([name]) => name));

const language = StreamLanguage.define({
  name: 'orrery-sql',
  token(stream) {
    if (stream.eatSpace()) return null;
    if (stream.match('--')) {
      stream.skipToEnd();
      return 'comment';
    }
    const quote = stream.peek();
    if (quote === '"' || quote === "'") {
      stream.next();
      let escaped = false;
      for (let letter = stream.next(); letter; letter = stream.next()) {
        if (letter === quote && !escaped) break;
        escaped = letter === '\\' && !escaped;
      }
      return 'string';
    }
    if (stream.match(/^@\w+/)) return 'atom';
    if (stream.match(/^\d+(\.\d+)?([eE][+-]?\d+)?/)) return 'number';
    const word = stream.match(/^[A-Za-z_$][\w$]*/) as RegExpMatchArray | null;
    if (word) {
      const before = stream.string.slice(0, stream.start).trimEnd().at(-1);
      if (before === '.') return 'propertyName';
      const capitals = word[0].toUpperCase();
      if (CONSTANTS.includes(word[0].toLowerCase())) return 'bool';
      if (/^\s*\(/.test(stream.string.slice(stream.pos)) && names.has(capitals)) return 'function';
      if (keywords.has(capitals)) return 'keyword';
      return 'variableName';
    }
    stream.next();
    return 'operator';
  },
  languageData: { commentTokens: { line: '--' }, closeBrackets: { brackets: ['(', '[', '{', "'", '"'] } },
  tokenTable: {},
});

/** What the container and the parameters contribute. */
export interface Known {
  /** Items of the container. */
  samples: () => unknown[];
  parameters: () => string[];
}

const FIXED: Completion[] = [
  ...KEYWORDS.map((label) => ({ label, type: 'keyword', boost: 1 })),
  ...CONSTANTS.map((label) => ({ label, type: 'constant' })),
  ...functions.map(([, signature, help]) => {
    const name = signature.slice(0, signature.indexOf('('));
    const hasArguments = !signature.endsWith('()');
    return snippetCompletion(hasArguments ? `${name}(\${})` : `${name}()`, { label: name, detail: signature.slice(name.length), info: help, type: 'function' });
  }),
];

/** What aliases stand for: `FROM c`, `JOIN l IN c.lines`. A path of names; arrays are stepped into. */
function aliases(text: string): Map<string, string[]> {
  const found = new Map<string, string[]>();
  const from = /\bFROM\s+([A-Za-z_]\w*)(?:\s+(?:AS\s+)?(?!WHERE\b|JOIN\b|GROUP\b|ORDER\b|OFFSET\b|IN\b)([A-Za-z_]\w*))?/i.exec(text);
  found.set(from?.[2] ?? from?.[1] ?? 'c', []);
  if (from?.[1]) found.set(from[1], []);
  for (const match of text.matchAll(/\b([A-Za-z_]\w*)\s+IN\s+([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*)*)/gi)) {
    const base = found.get(match[2]!);
    if (base) found.set(match[1]!, [...base, ...match[3]!.split('.').filter(Boolean), '[]']);
  }
  return found;
}

function step(values: unknown[], name: string): unknown[] {
  return values.flatMap((value) => {
    if (name === '[]') return Array.isArray(value) ? value.slice(0, 5) : [];
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return [];
    const member = (value as Record<string, unknown>)[name];
    return member === undefined ? [] : [member];
  });
}

const kindOf = (value: unknown): string => (value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value);

function propertiesAt(known: Known, path: string[]): Completion[] {
  let values = known.samples();
  for (const name of path) values = step(values, name);
  const found = new Map<string, { count: number; example: unknown }>();
  for (const value of values) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) continue;
    for (const [name, member] of Object.entries(value)) {
      const before = found.get(name);
      if (before) before.count++;
      else found.set(name, { count: 1, example: member });
    }
  }
  return [...found].map(([name, { count, example }]) => ({
    label: name,
    type: 'property',
    detail: kindOf(example),
    info: `For example ${JSON.stringify(example).slice(0, 100)}`,
    boost: Math.min(90, 10 + count) - (name.startsWith('_') ? 60 : 0),
    apply: /^[A-Za-z_]\w*$/.test(name) ? undefined : (view, _completion, from, to) => view.dispatch({ changes: { from: from - 1, to, insert: `["${name}"]` }, selection: { anchor: from - 1 + name.length + 4 } }),
  }));
}

export function completeFrom(known: Known) {
  return (context: CompletionContext): CompletionResult | null => {
    const parameter = context.matchBefore(/@\w*/);
    if (parameter) return { from: parameter.from, options: known.parameters().map((label) => ({ label, type: 'constant' })), validFor: /^@\w*$/ };
    const text = context.state.doc.toString();
    const chain = context.matchBefore(/[A-Za-z_]\w*(?:\.[A-Za-z_]\w*|\[\d+\])*\.\w*/);
    if (chain) {
      const segments = chain.text.replaceAll(/\[\d+\]/g, '.[]').split('.');
      // Before there is a FROM, any name may become the alias.
      const alias = aliases(text).get(segments[0]!) ?? (/\bFROM\b/i.test(text) ? undefined : []);
      if (alias === undefined) return null;
      const from = chain.to - segments.at(-1)!.length;
      return { from, options: propertiesAt(known, [...alias, ...segments.slice(1, -1)]), validFor: /^\w*$/ };
    }
    const word = context.matchBefore(/[A-Za-z_]\w*/);
    if (!word && !context.explicit) return null;
    const own = [...aliases(text).keys()].map((label) => ({ label, type: 'variable', boost: 50 }));
    return { from: word?.from ?? context.pos, options: [...own, ...FIXED], validFor: /^\w*$/ };
  };
}

export const sql = (known: Known): LanguageSupport => new LanguageSupport(language, [language.data.of({ autocomplete: completeFrom(known) })]);
