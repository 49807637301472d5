// Builds, validates and enumerates keys.

import { parse, showPath } from "./definition.js";
import { SyntheticKeyError } from "./errors.js";
import { murmur3 } from "./murmur3.js";
import { dateFormatted, numberFormatted, numberText } from "./texts.js";

const KEY_BYTES_MAX = 2048;
const KEYS_MAX = 100000;
const HASHED_SEPARATOR = "\u001f";
const encoder = new TextEncoder();

const tooMany = () => new SyntheticKeyError("tooMany", `the read would visit more than ${KEYS_MAX} keys`);
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** A definition of a synthetic key. Its fields are described in docs/partition-keys.md. */
export class Definition {
  #strategies;
  #versionProperty;

  constructor(source) {
    const parsed = parse(source);
    this.source = structuredClone(source);
    this.#strategies = parsed.strategies;
    this.#versionProperty = parsed.versionProperty;
  }

  get keyPaths() {
    return this.#strategies.at(-1).levels.map((level) => showPath(level.property));
  }

  apply(item, below = secureBelow) {
    const strategy = this.#recordedVersion(item) ?? this.#strategies.at(-1);
    return key(strategy, strategy.levels.map((level) => make(level, item, below)));
  }

  keyOf(item, below = secureBelow) {
    const recorded = this.#recordedVersion(item);
    if (recorded) return complete(recorded, item, below);
    const current = this.#strategies.at(-1);
    const made = current.levels.filter((level) => level.kind === "made");
    if (made.every((level) => property(item, level.property) === undefined)) return complete(current, item, below);
    let firstError;
    for (const strategy of this.#live()) {
      try {
        return complete(strategy, item, below);
      } catch (error) {
        if (!(error instanceof SyntheticKeyError)) throw error;
        firstError ??= error;
      }
    }
    throw firstError;
  }

  insertInto(item, below = secureBelow) {
    const own = this.keyOf(item, below);
    this.#strategies.at(-1).levels.forEach((level, at) => place(item, level.property, own.components[at]));
    if (this.#versionProperty) place(item, this.#versionProperty, own.version);
    return own;
  }

  keysFor(filter) {
    const recorded = this.#recordedVersion(filter);
    const keys = new Map();
    for (const strategy of this.#live()) {
      if (recorded && strategy !== recorded) continue;
      for (const components of possible(strategy, filter)) {
        const code = JSON.stringify(components);
        if (!keys.has(code)) keys.set(code, key(strategy, components));
        if (keys.size > KEYS_MAX) throw tooMany();
      }
    }
    return [...keys.values()];
  }

  #live() {
    return this.#strategies.filter((strategy) => !strategy.retired).reverse();
  }

  #recordedVersion(item) {
    if (!this.#versionProperty) return undefined;
    const found = property(item, this.#versionProperty);
    if (found === undefined) return undefined;
    const strategy = this.#live().find((strategy) => strategy.version === found);
    if (strategy) return strategy;
    const shown = showPath(this.#versionProperty);
    const message = `${shown} names version ${JSON.stringify(found)}, which the definition does not record as in use`;
    throw new SyntheticKeyError("version", message);
  }
}

const key = (strategy, components) => ({
  version: strategy.version,
  components,
  value: components.length === 1 ? components[0] : components,
});

const complete = (strategy, item, below) =>
  key(strategy, strategy.levels.map((level) => takeOrMake(level, item, below)));

/** An unbiased choice from the platform's secure random numbers. */
function secureBelow(bound) {
  const limit = 2 ** 32 - (2 ** 32 % bound);
  const drawn = new Uint32Array(1);
  do globalThis.crypto.getRandomValues(drawn);
  while (drawn[0] >= limit);
  return drawn[0] % bound;
}

/** The value at a path of an item, or undefined. */
function property(item, path) {
  let value = item;
  for (const name of path) {
    if (!isObject(value) || !Object.hasOwn(value, name)) return undefined;
    value = value[name];
  }
  return value;
}

function possible(strategy, filter) {
  let keys = [[]];
  for (const [index, level] of strategy.levels.entries()) {
    let found;
    try {
      found = choices(level, filter);
    } catch (error) {
      if (error.code === "undetermined" && index > 0) break;
      throw error;
    }
    if (keys.length * found.length > KEYS_MAX) throw tooMany();
    keys = keys.flatMap((own) => found.map((choice) => [...own, choice]));
  }
  return keys;
}

function make(level, item, below) {
  if (level.kind === "existing") return existing(level, item);
  const base = baseOf(level, item);
  const { suffix } = level;
  if (!suffix) return bounded(base);
  const number = suffix.of ? hashed(suffix.of, item) % suffix.count : below(suffix.count);
  return bounded(suffixed(suffix, base, number));
}

function takeOrMake(level, item, below) {
  const found = property(item, level.property);
  if (found === undefined || level.kind === "existing") return make(level, item, below);
  const { suffix } = level;
  let expected;
  if (suffix && !suffix.of) {
    const base = baseOf(level, item);
    const prefix = base === "" ? "" : base + suffix.separator;
    if (typeof found === "string" && found.startsWith(prefix)) {
      const digits = found.slice(prefix.length);
      const number = Number(digits);
      const inRange = number >= suffix.first && number < suffix.first + suffix.count;
      if (/^\d{1,10}$/.test(digits) && String(number) === digits && inRange) return bounded(found);
    }
    expected = `"${prefix}${suffix.first}" to "${prefix}${suffix.first + suffix.count - 1}"`;
  } else {
    const made = make(level, item, below);
    if (found === made) return made;
    expected = JSON.stringify(made);
  }
  const shown = JSON.stringify(found).slice(0, 100);
  const message = `${showPath(level.property)} is ${shown}, but the definition yields ${expected} for this item`;
  throw new SyntheticKeyError("contradiction", message);
}

function choices(level, filter) {
  const undetermined = (path) => {
    const message = `the filter says nothing about ${showPath(path)}, so the item may have any key`;
    return new SyntheticKeyError("undetermined", message);
  };
  if (level.kind === "existing") {
    if (property(filter, level.property) === undefined) throw undetermined(level.property);
    return [existing(level, filter)];
  }
  const open = level.parts.find((part) => isAbsent(part, filter));
  if (open) throw undetermined(open.names[0]);
  const { suffix } = level;
  if (!suffix) return [bounded(baseOf(level, filter))];
  const numbers =
    suffix.of && !suffix.of.some((part) => isAbsent(part, filter))
      ? [hashed(suffix.of, filter) % suffix.count]
      : Array.from({ length: suffix.count }, (_, number) => number);
  const base = baseOf(level, filter);
  return numbers.map((number) => bounded(suffixed(suffix, base, number)));
}

function baseOf(level, item) {
  const texts = [];
  for (const part of level.parts) {
    const found = partText(part, item);
    if (!found) continue;
    const { text, substitute } = found;
    texts.push(level.escaped ? (substitute ? "%~" : "") + escape(text, level.escaped) : text);
  }
  if (level.parts.length > 0 && texts.length === 0) throw missing(level.parts[0]);
  return texts.join(level.separator);
}

const suffixed = (suffix, base, number) => `${base}${base === "" ? "" : suffix.separator}${suffix.first + number}`;

function hashed(parts, item) {
  const texts = parts.map((part) => partText(part, item)).filter((found) => found);
  if (texts.length === 0) throw missing(parts[0]);
  return murmur3(utf8(texts.map((found) => found.text).join(HASHED_SEPARATOR)));
}

const shownPart = (part) => (part.names.length > 0 ? showPath(part.names[0]) : "");
const missing = (part) =>
  new SyntheticKeyError("missing", `the item has no property ${shownPart(part)}, which its key is built from`);

/** The property under any of its names. If the item has several of them, the values must agree. */
function partProperty(part, item) {
  let found;
  for (const name of part.names) {
    const other = property(item, name);
    if (other === undefined) continue;
    const bothNested = typeof found === "object" && found !== null && typeof other === "object" && other !== null;
    if (found === undefined) found = other;
    else if (found !== other && !bothNested) {
      throw new SyntheticKeyError("ambiguous", `the property ${shownPart(part)} has different values under its current and earlier names`);
    }
  }
  return found;
}

function isAbsent(part, item) {
  if (part.fixed !== undefined) return false;
  try {
    return partProperty(part, item) === undefined;
  } catch {
    return false;
  }
}

function partText(part, item) {
  if (part.fixed !== undefined) return { text: part.fixed, substitute: false };
  const value = partProperty(part, item);
  const shown = shownPart(part);
  let treatment;
  let error;
  if (value === undefined) [treatment, error] = [part.missing, missing(part)];
  else if (value === null) {
    treatment = part.null;
    error = new SyntheticKeyError("null", `the property ${shown}, which the key is built from, is null`);
  } else if (typeof value === "object") {
    treatment = part.nonScalar;
    const message = `the property ${shown}, which the key is built from, is an object or an array`;
    error = new SyntheticKeyError("nonScalar", message);
  } else return { text: scalarText(part, value, shown), substitute: false };
  if (treatment === "error") throw error;
  return treatment === "skip" ? undefined : { text: treatment.text, substitute: true };
}

function scalarText(part, value, shown) {
  let text;
  if (part.date !== undefined) text = dateFormatted(value, part.date, part.epoch, shown);
  else if (part.number !== undefined) {
    if (typeof value !== "number") {
      throw new SyntheticKeyError("format", `the property ${shown} does not fit its format: expected a number`);
    }
    text = numberFormatted(value, part.number, shown);
  } else if (typeof value === "number") text = numberText(value, shown);
  else text = String(value);
  // ASCII letters only: other letters fold differently from version to version of Unicode.
  if (part.case === "lower") return text.replace(/[A-Z]/g, (letter) => letter.toLowerCase());
  if (part.case === "upper") return text.replace(/[a-z]/g, (letter) => letter.toUpperCase());
  return text;
}

function escape(text, escaped) {
  let out = "";
  for (const character of text) {
    if (!escaped.has(character)) out += character;
    else for (const byte of utf8(character)) out += `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return out;
}

function utf8(text) {
  if (/\p{Surrogate}/u.test(text)) throw new SyntheticKeyError("format", "a string is not well-formed Unicode");
  return encoder.encode(text);
}

function bounded(text) {
  if (utf8(text).length > KEY_BYTES_MAX) {
    throw new SyntheticKeyError("tooLong", `the key is longer than ${KEY_BYTES_MAX} bytes`);
  }
  return text;
}

function existing(level, item) {
  const value = property(item, level.property);
  const shown = showPath(level.property);
  if (value === undefined) {
    throw new SyntheticKeyError("missing", `the item has no property ${shown}, which its key is built from`);
  }
  if (value === null && !level.keepNull) {
    throw new SyntheticKeyError("null", `the property ${shown}, which the key is built from, is null`);
  }
  if (typeof value === "object" && value !== null) {
    const message = `the property ${shown}, which the key is built from, is an object or an array`;
    throw new SyntheticKeyError("nonScalar", message);
  }
  if (typeof value === "number" && !Number.isFinite(value)) {
    throw new SyntheticKeyError("format", `the property ${shown} does not fit its format: the number is not finite`);
  }
  return typeof value === "string" ? bounded(value) : value;
}

function place(item, path, value) {
  let inner = item;
  for (const name of path.slice(0, -1)) {
    if (!isObject(inner)) break;
    if (!Object.hasOwn(inner, name)) inner[name] = {};
    inner = inner[name];
  }
  if (!isObject(inner)) {
    throw new SyntheticKeyError("place", `${showPath(path)} cannot be stored: its parent is not an object`);
  }
  inner[path.at(-1)] = value;
}
