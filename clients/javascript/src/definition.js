// Parses a definition. Unknown fields are errors: a misspelt field would silently change keys.

const SUFFIXES_MAX = 100000;
const PARTS_MAX = 32;
const VERSIONS_MAX = 64;

const PART_FIELDS = ["path", "was", "text", "date", "epoch", "number", "case", "missing", "null", "nonScalar"];
const MADE_FIELDS = ["kind", "parts", "separator", "escape", "suffix", "missing", "null", "nonScalar"];
const UNITS = ["year", "month", "week", "day", "hour", "minute"];

/** An invalid definition; `at` is the place of the error. */
export class DefinitionError extends Error {
  constructor(at, message) {
    super(`${at}: ${message}`);
    this.name = "DefinitionError";
    this.at = at;
  }
}

export function parsePath(text) {
  if (text === "") throw new Error("expected a path such as /date");
  if (!text.startsWith("/")) {
    if (text.includes("/")) throw new Error(`the path ${text} must start with a slash`);
    return [text];
  }
  const names = [];
  let rest = text.slice(1);
  for (;;) {
    let name;
    let after;
    if (rest.startsWith('"')) {
      const end = rest.indexOf('"', 1);
      if (end < 0) throw new Error(`the path ${text} has an unterminated quote`);
      [name, after] = [rest.slice(1, end), rest.slice(end + 1)];
    } else {
      const end = rest.includes("/") ? rest.indexOf("/") : rest.length;
      [name, after] = [rest.slice(0, end), rest.slice(end)];
    }
    if (name === "") throw new Error(`the path ${text} has an empty name`);
    names.push(name);
    if (after === "") return names;
    if (!after.startsWith("/")) throw new Error(`the path ${text} has text after a quoted name`);
    rest = after.slice(1);
  }
}

export const showPath = (path) => path.map((name) => (name.includes("/") ? `/"${name}"` : `/${name}`)).join("");
const isSame = (left, right) => left.length === right.length && left.every((name, at) => name === right[at]);

export function parse(source) {
  const fields = object(source, "definition");
  if (whole(fields.format, "format", 1, 1) === undefined) throw new DefinitionError("format", "must be 1");
  const shared = path(fields.property, "property") ?? ["partitionKey"];
  const versionProperty = path(fields.versionProperty, "versionProperty");
  const strategies = [];
  if ("versions" in fields) {
    known(fields, ["format", "property", "versionProperty", "versions"], "definition");
    const versions = array(fields.versions, "versions");
    if (versions.length < 1 || versions.length > VERSIONS_MAX) {
      throw new DefinitionError("versions", `must be 1 to ${VERSIONS_MAX}`);
    }
    versions.forEach((entry, index) => {
      const at = `versions[${index}]`;
      const { version, retired, ...inner } = object(entry, at);
      const number = whole(version, `${at}.version`, 1, 2 ** 32 - 1);
      if (number === undefined) throw new DefinitionError(`${at}.version`, "is required");
      strategies.push({ version: number, retired: flag(retired, `${at}.retired`), levels: levels(inner, shared, at) });
    });
    strategies.sort((left, right) => left.version - right.version);
    if (new Set(strategies.map((strategy) => strategy.version)).size < strategies.length) {
      throw new DefinitionError("versions", "two versions have the same number");
    }
    if (strategies.at(-1).retired) {
      throw new DefinitionError("versions", "the newest version is retired, so no key can be built");
    }
  } else {
    const { format, property, versionProperty: told, ...inner } = fields;
    strategies.push({ version: 1, retired: false, levels: levels(inner, shared, "definition") });
  }
  const targets = strategies.map((strategy) => strategy.levels.map((level) => level.property));
  const first = targets[0];
  if (targets.some((own) => own.length !== first.length || !own.every((name, at) => isSame(name, first[at])))) {
    throw new DefinitionError("versions", "all versions must store their keys under the same properties");
  }
  if (versionProperty && first.some((target) => isSame(target, versionProperty))) {
    throw new DefinitionError("versionProperty", "must not be the key's own property");
  }
  shareNames(strategies);
  const made = strategies.flatMap((strategy) => strategy.levels).filter((level) => level.kind === "made");
  for (const part of allParts(strategies)) {
    const name = part.names.find((name) => made.some((level) => isSame(level.property, name)));
    if (name) throw new DefinitionError("parts", `${showPath(name)} is the key itself`);
  }
  return { strategies, versionProperty };
}

const allParts = (strategies) =>
  strategies
    .flatMap((strategy) => strategy.levels)
    .filter((level) => level.kind === "made")
    .flatMap((level) => [...level.parts, ...(level.suffix?.of ?? [])])
    .filter((part) => part.fixed === undefined);

/** Makes every part look up its property under all names that any version declares for it. */
function shareNames(strategies) {
  let classes = [];
  const code = (name) => JSON.stringify(name);
  for (const part of allParts(strategies)) {
    const merged = new Set(part.names.map(code));
    classes = classes.filter((other) => {
      const apart = ![...other].some((name) => merged.has(name));
      if (!apart) other.forEach((name) => merged.add(name));
      return apart;
    });
    classes.push(merged);
  }
  for (const part of allParts(strategies)) {
    const own = new Set(part.names.map(code));
    const shared = classes.find((names) => names.has(code(part.names[0])));
    part.names.push(...[...shared].filter((name) => !own.has(name)).map((name) => JSON.parse(name)));
  }
}

function levels(fields, shared, at) {
  const kind = text(fields.kind, `${at}.kind`);
  if (kind !== "hierarchical") {
    if (kind === "property") {
      throw new DefinitionError(`${at}.kind`, "a plain property is only allowed as a level of a hierarchical key");
    }
    return [{ property: shared, ...maker(fields, at) }];
  }
  known(fields, ["kind", "levels"], at);
  if (!("levels" in fields)) throw new DefinitionError(`${at}.levels`, "is required");
  const inner = array(fields.levels, `${at}.levels`);
  if (inner.length < 2 || inner.length > 3) throw new DefinitionError(`${at}.levels`, "must have two or three elements");
  const found = [];
  inner.forEach((entry, index) => {
    const place = `${at}.levels[${index}]`;
    const own = object(entry, place);
    let level;
    if (text(own.kind, `${place}.kind`) === "property") {
      known(own, ["kind", "path", "null"], place);
      const property = path(own.path, `${place}.path`);
      if (!property) throw new DefinitionError(`${place}.path`, "is required");
      const treatment = text(own.null, `${place}.null`);
      if (![undefined, "error", "keep"].includes(treatment)) {
        throw new DefinitionError(`${place}.null`, "must be error or keep");
      }
      level = { property, kind: "existing", keepNull: treatment === "keep" };
    } else {
      const { property: target, ...rest } = own;
      const property = path(target, `${place}.property`);
      if (!property) throw new DefinitionError(`${place}.property`, "is required");
      level = { property, ...maker(rest, place) };
    }
    if (found.some((other) => isSame(other.property, level.property))) {
      throw new DefinitionError(place, "two levels have the same property");
    }
    found.push(level);
  });
  return found;
}

function maker(fields, at) {
  known(fields, MADE_FIELDS, at);
  const kind = text(fields.kind, `${at}.kind`);
  const separator = text(fields.separator, `${at}.separator`) ?? "-";
  const escape = flag(fields.escape, `${at}.escape`);
  const defaults = treatments(fields, at, { missing: "error", null: "error", nonScalar: "error" });
  const parts = partList(fields.parts, `${at}.parts`, defaults);
  let own;
  if (kind === "concatenate") {
    if ("suffix" in fields) throw new DefinitionError(`${at}.suffix`, "is not allowed for a concatenation");
  } else if (kind === "randomSuffix" || kind === "precalculatedSuffix") {
    own = suffix(fields, at, defaults, kind === "precalculatedSuffix");
  } else {
    const kinds = "concatenate, randomSuffix, precalculatedSuffix or hierarchical";
    throw new DefinitionError(`${at}.kind`, `must be ${kinds}`);
  }
  if (parts.length === 0 && !own) throw new DefinitionError(`${at}.parts`, "at least one part is required");
  const escaped = escape ? escapedCharacters(separator, own, parts, at) : undefined;
  return { kind: "made", parts, separator, escaped, suffix: own };
}

function escapedCharacters(separator, own, parts, at) {
  const second = own ? own.separator : separator;
  const ambiguous = (part) => part === "" || /[A-Za-z0-9%~]/.test(part);
  if (ambiguous(separator) || ambiguous(second)) {
    const message = "with escape, separators must not be empty or contain letters, digits, % or ~";
    throw new DefinitionError(`${at}.separator`, message);
  }
  if (parts.some((part) => [part.missing, part.null, part.nonScalar].includes("skip"))) {
    throw new DefinitionError(`${at}.escape`, "with escape, no part may be skipped");
  }
  return new Set([..."%", ...separator, ...second]);
}

function suffix(fields, outer, defaults, hashed) {
  const at = `${outer}.suffix`;
  if (!("suffix" in fields)) throw new DefinitionError(at, "is required");
  const own = object(fields.suffix, at);
  known(own, ["count", "first", "separator", "of", "hash"], at);
  const count = whole(own.count, `${at}.count`, 1, SUFFIXES_MAX);
  if (count === undefined) throw new DefinitionError(`${at}.count`, "is required");
  const first = whole(own.first, `${at}.first`, 0, 1e9) ?? 1;
  const separator = text(own.separator, `${at}.separator`) ?? ".";
  const of = partList(own.of, `${at}.of`, defaults);
  if (hashed === (of.length === 0)) {
    const message = hashed ? "at least one property is required" : "a random suffix is not computed from properties";
    throw new DefinitionError(`${at}.of`, message);
  }
  const hash = text(own.hash, `${at}.hash`);
  if (hash !== undefined && (!hashed || hash !== "murmur3-x86-32")) {
    throw new DefinitionError(`${at}.hash`, "must be murmur3-x86-32, for a pre-calculated suffix");
  }
  return { count, first, separator, of: hashed ? of : undefined };
}

function treatments(fields, at, defaults) {
  const found = {};
  for (const name of ["missing", "null", "nonScalar"]) {
    const value = fields[name] === undefined ? defaults[name] : fields[name];
    const isText = isObject(value) && Object.keys(value).length === 1 && typeof value.text === "string";
    if (!isText && value !== "error" && value !== "skip") {
      throw new DefinitionError(`${at}.${name}`, 'must be error, skip or {"text": …}');
    }
    found[name] = value;
  }
  return found;
}

function partList(value, at, defaults) {
  if (value === undefined) return [];
  const parts = array(value, at);
  if (parts.length > PARTS_MAX) throw new DefinitionError(at, `at most ${PARTS_MAX} are allowed`);
  return parts.map((part, index) => onePart(part, `${at}[${index}]`, defaults));
}

function onePart(value, at, defaults) {
  const fields = typeof value === "string" ? { path: value } : object(value, at);
  known(fields, PART_FIELDS, at);
  const found = treatments(fields, at, defaults);
  const fixed = text(fields.text, `${at}.text`);
  const names = [];
  if (fixed !== undefined) {
    if (Object.keys(fields).length > 1) throw new DefinitionError(at, "a fixed text must not have other fields");
  } else {
    const own = path(fields.path, `${at}.path`);
    if (!own) throw new DefinitionError(`${at}.path`, "is required");
    names.push(own);
    if ("was" in fields) {
      for (const earlier of array(fields.was, `${at}.was`)) {
        if (typeof earlier !== "string") throw new DefinitionError(`${at}.was`, "must be a string");
        names.push(path(earlier, `${at}.was`));
      }
      if (names.length > PARTS_MAX) throw new DefinitionError(`${at}.was`, `at most ${PARTS_MAX} are allowed`);
    }
  }
  const fold = text(fields.case, `${at}.case`);
  if (![undefined, "lower", "upper"].includes(fold)) throw new DefinitionError(`${at}.case`, "must be lower or upper");
  return { fixed, names, case: fold, ...format(fields, at), ...found };
}

function format(fields, at) {
  const date = text(fields.date, `${at}.date`);
  if (date !== undefined && !UNITS.includes(date)) {
    throw new DefinitionError(`${at}.date`, "must be year, month, week, day, hour or minute");
  }
  const epoch = text(fields.epoch, `${at}.epoch`);
  if (![undefined, "seconds", "milliseconds"].includes(epoch)) {
    throw new DefinitionError(`${at}.epoch`, "must be seconds or milliseconds");
  }
  if (date !== undefined && "number" in fields) {
    throw new DefinitionError(`${at}.number`, "a part must not be both a date and a number");
  }
  if (date === undefined && epoch !== undefined) throw new DefinitionError(`${at}.epoch`, "is only allowed with date");
  let number;
  if ("number" in fields) {
    const place = `${at}.number`;
    const own = object(fields.number, place);
    known(own, ["decimals", "width", "bucket"], place);
    number = {
      decimals: whole(own.decimals, `${place}.decimals`, 0, 15),
      width: whole(own.width, `${place}.width`, 0, 32) ?? 0,
      bucket: whole(own.bucket, `${place}.bucket`, 1, 1e9),
    };
  }
  return { date, epoch, number };
}

function known(fields, names, at) {
  for (const name of Object.keys(fields)) {
    if (!names.includes(name)) throw new DefinitionError(`${at}.${name}`, "is not a known field");
  }
}

const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

function object(value, at) {
  if (!isObject(value)) throw new DefinitionError(at, "must be an object");
  return value;
}

function array(value, at) {
  if (!Array.isArray(value)) throw new DefinitionError(at, "must be an array");
  return value;
}

function text(value, at) {
  if (value !== undefined && typeof value !== "string") throw new DefinitionError(at, "must be a string");
  return value;
}

function flag(value, at) {
  if (value !== undefined && typeof value !== "boolean") throw new DefinitionError(at, "must be true or false");
  return value ?? false;
}

function whole(value, at, least, most) {
  if (value === undefined) return undefined;
  if (!Number.isInteger(value) || value < least || value > most) {
    throw new DefinitionError(at, `must be a whole number from ${least} to ${most}`);
  }
  return value;
}

function path(value, at) {
  const found = text(value, at);
  if (found === undefined) return undefined;
  try {
    return parsePath(found);
  } catch (error) {
    throw new DefinitionError(at, error.message);
  }
}
