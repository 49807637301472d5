// The test vectors shared by all implementations, and tests specific to JavaScript: `node --test tests/`.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Definition, DefinitionError, SyntheticKeyError, murmur3 } from "../src/index.js";

const file = new URL("../../../crates/synthetic-key/tests/data/vectors.json", import.meta.url);
const vectors = JSON.parse(readFileSync(file, "utf8"));
const definitions = Object.fromEntries(
  Object.entries(vectors.definitions).map(([name, source]) => [name, new Definition(source)]),
);

function attempt(call) {
  try {
    return call();
  } catch (error) {
    if (!(error instanceof SyntheticKeyError)) throw error;
    return { error: error.code };
  }
}

test("hashes", () => {
  for (const { text, hash } of vectors.hashes) assert.equal(murmur3(new TextEncoder().encode(text)), hash, text);
});

test("keys", () => {
  assert.ok(vectors.keys.length >= 300);
  for (const vector of vectors.keys) {
    const found = attempt(() => definitions[vector.definition].apply(vector.item, () => vector.draw ?? 0));
    const expected = vector.error ? { error: vector.error } : [vector.version, vector.key];
    assert.deepEqual(vector.error ? found : [found.version, found.components], expected, JSON.stringify(vector));
  }
});

test("reads", () => {
  for (const vector of vectors.reads) {
    const found = attempt(() => definitions[vector.definition].keysFor(vector.filter));
    const note = JSON.stringify(vector);
    if (vector.error) {
      assert.deepEqual(found, { error: vector.error }, note);
      continue;
    }
    const all = () => Array.from({ length: vector.count }, (_, at) => [`${vector.prefix}${vector.first + at}`]);
    assert.deepEqual(found.map((key) => key.components), vector.keys ?? all(), note);
  }
});

test("inserts", () => {
  for (const vector of vectors.inserts) {
    const item = structuredClone(vector.item);
    const found = attempt(() => definitions[vector.definition].insertInto(item, () => vector.draw));
    if (vector.error) assert.deepEqual(found, { error: vector.error }, JSON.stringify(vector));
    else assert.deepEqual(item, vector.result, JSON.stringify(vector));
  }
});

test("invalid definitions", () => {
  for (const source of vectors.invalid) {
    assert.throws(() => new Definition(source), DefinitionError, JSON.stringify(source));
  }
});

test("the default random source is uniform", () => {
  const drawn = new Set();
  for (let count = 0; count < 20000; count++) drawn.add(definitions["date-random"].apply({ date: "d" }).value);
  assert.equal(drawn.size, 400);
});

test("what only JavaScript can pass", () => {
  for (const v of [NaN, Infinity, "\ud800"]) {
    assert.deepEqual(attempt(() => definitions.plain.apply({ v })), { error: "format" });
  }
  assert.deepEqual(attempt(() => definitions.plain.apply({ v: undefined })), { error: "missing" });
});
