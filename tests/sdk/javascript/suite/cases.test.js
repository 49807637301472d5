"use strict";
/**
 * Every case of the query language through the client, over four physical partitions: merged by the client
 * from a query plan and the rows of each range, and answered by the server alone.
 */

const assert = require("node:assert/strict");
const fs = require("node:fs");
const path = require("node:path");
const { test, before, after } = require("node:test");
const { CosmosClient } = require("@azure/cosmos");
const server = require("../support/server");

const KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
const CASES = path.join(__dirname, "../../../../crates/orrery-query/tests/cases");
const SYSTEM_PROPERTIES = new Set(["_rid", "_self", "_etag", "_attachments", "_ts"]);

/** What this client does not do when it merges, whatever the ranges answer. Each is asserted to fail. */
const SKIPS_RANGES = "ranges whose aggregate is undefined are passed over, so that the rest decides";
const ONE_TYPE = "values of different types, nulls and missing ones cannot be merged in order";
const CLIENT_LIMITS = new Map(
  Object.entries({
    "AVG over numbers and a string": SKIPS_RANGES,
    "AVG over numbers and an array": SKIPS_RANGES,
    "MAX over numbers and an array": SKIPS_RANGES,
    "MIN over numbers and an array": SKIPS_RANGES,
    "five aggregates with an array and an object": SKIPS_RANGES,
    "five aggregates with booleans": SKIPS_RANGES,
    "five aggregates with null": SKIPS_RANGES,
    "aggregate plus a constant": "plans refuse expressions around aggregates; the case is for one partition",
    "items: reserved property sorts": ONE_TYPE,
    "missing value sorts last when descending": ONE_TYPE,
    "name ASC then age ASC with one missing age": ONE_TYPE,
    "name ASC then age DESC with one missing age": ONE_TYPE,
    "one key over mixed primitive types": ONE_TYPE,
    "type order of one value per type": ONE_TYPE,
    "type order reversed": ONE_TYPE,
  }),
);

let running;
let client;
let database;
const datasets = JSON.parse(fs.readFileSync(path.join(CASES, "datasets.json"), "utf8"));
const containers = new Map();

before(async () => {
  running = await server.start(["--in-memory", "--partitions-at-creation", "4"]);
  client = new CosmosClient({ endpoint: running.endpoint, key: KEY });
  ({ database } = await client.databases.create({ id: "cases" }));
});

after(async () => {
  client?.dispose();
  await running?.stop();
});

async function containerFor(testCase) {
  const documents = testCase.documents ?? datasets[testCase.dataset] ?? [];
  const definition = { partitionKey: { paths: ["/id"], version: 2 } };
  if (testCase.indexingPolicy) definition.indexingPolicy = structuredClone(testCase.indexingPolicy);
  if (testCase.compositeIndexes) {
    definition.indexingPolicy ??= { includedPaths: [{ path: "/*" }] };
    definition.indexingPolicy.compositeIndexes = testCase.compositeIndexes;
  }
  for (const name of ["computedProperties", "vectorEmbeddingPolicy", "fullTextPolicy"]) {
    if (testCase[name]) definition[name] = testCase[name];
  }
  const identity = JSON.stringify([definition, documents]);
  if (!containers.has(identity)) {
    const id = `c${containers.size}`;
    const made = (async () => {
      const { container } = await database.containers.create({ id, ...definition });
      for (const document of documents) await container.items.create(document);
      return container;
    })();
    containers.set(identity, made);
  }
  return containers.get(identity);
}

function stripped(value) {
  if (Array.isArray(value)) return value.map(stripped);
  if (value === null || typeof value !== "object") return value;
  // Where an aggregate is undefined the client leaves a member without a value.
  const kept = Object.entries(value).filter(
    ([name, member]) => !SYSTEM_PROPERTIES.has(name) && member !== undefined,
  );
  return Object.fromEntries(kept.map(([name, member]) => [name, stripped(member)]));
}

function same(left, right, testCase) {
  const tolerance = testCase.tolerance ?? 0;
  if (typeof left === "number" && typeof right === "number") {
    const difference = Math.abs(left - right);
    const near = difference <= tolerance * Math.max(Math.abs(left), Math.abs(right));
    return left === right || near || (tolerance > 0 && difference < 1e-12);
  }
  if (Array.isArray(left) && Array.isArray(right)) {
    return left.length === right.length && left.every((value, at) => same(value, right[at], testCase));
  }
  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  if (isObject(left) && isObject(right)) {
    const names = Object.keys(left);
    const sameMember = (name) =>
      Array.isArray(left[name]) && Array.isArray(right[name]) && testCase.unorderedArrays?.includes(name)
        ? sameRows(left[name], right[name], { ...testCase, ordered: false })
        : same(left[name], right[name], testCase);
    return (
      names.length === Object.keys(right).length && names.every((name) => name in right && sameMember(name))
    );
  }
  return left === right;
}

function sameRows(left, right, testCase) {
  if (left.length !== right.length) return false;
  if (testCase.ordered) return left.every((row, at) => same(row, right[at], testCase));
  const rest = [...right];
  return left.every((row) => {
    const at = rest.findIndex((other) => same(row, other, testCase));
    if (at >= 0) rest.splice(at, 1);
    return at >= 0;
  });
}

function checkError(expected, error) {
  assert.equal(error.code, 400, `failed with ${error.code}: ${error.message}`);
  const text = `${error.message} ${JSON.stringify(error.body ?? {})}`.replaceAll('\\"', '"').replaceAll("\\\\", "\\");
  const shown = text.slice(0, 500);
  if (expected.codes) assert.ok(expected.codes.some((code) => text.includes(String(code))), shown);
  if (expected.message) assert.ok(text.includes(expected.message), shown);
}

async function checkCase(testCase, options) {
  const container = await containerFor(testCase).catch((error) => error);
  if (container instanceof Error) {
    if (!testCase.error) throw container;
    return checkError(testCase.error, container);
  }
  for (const [id, body] of Object.entries(testCase.udfs ?? {})) {
    const made = await container.scripts.userDefinedFunctions.create({ id, body }).catch((error) => error);
    if (made instanceof Error && made.code !== 409) throw made;
  }
  const spec = { query: testCase.query, parameters: testCase.parameters ?? [] };
  let rows;
  try {
    rows = (await container.items.query(spec, options).fetchAll()).resources.map(stripped);
  } catch (error) {
    if (!testCase.error) throw error;
    return checkError(testCase.error, error);
  }
  assert.ok(!testCase.error, `gave ${JSON.stringify(rows)} instead of an error`);
  const expected = testCase.expected.map(stripped);
  assert.ok(
    sameRows(rows, expected, testCase),
    `gave     ${JSON.stringify(rows)}\nexpected ${JSON.stringify(expected)}`,
  );
}

const families = fs.readdirSync(CASES).filter((name) => name.endsWith(".json") && name !== "datasets.json");
const all = families.flatMap((name) => JSON.parse(fs.readFileSync(path.join(CASES, name), "utf8")));

async function checkAll(options, limits) {
  const failures = [];
  for (const testCase of all) {
    const limit = limits.get(testCase.name);
    try {
      await checkCase(testCase, options);
      if (limit) failures.push(`${testCase.name}\n  works, though it is listed: ${limit}`);
    } catch (error) {
      if (!limit) failures.push(`${testCase.name}\n  ${testCase.query}\n  ${error.message}`);
    }
  }
  assert.equal(failures.length, 0, `${failures.length} of ${all.length} failed:\n${failures.join("\n")}`);
  assert.equal(all.length, 1188);
}

test("all cases hold when the client plans and merges", () =>
  checkAll({ forceQueryPlan: true, maxItemCount: 3 }, CLIENT_LIMITS));

test("all cases hold when the server merges", () => checkAll({ maxItemCount: 3 }, new Map()));

test("queries tell which indexes they use", async () => {
  const container = await containerFor({ documents: [{ id: "1", name: "a", age: 5 }] });
  const { indexMetrics } = await container.items
    .query("SELECT * FROM c WHERE c.id = '1' AND c.age > 3", { populateIndexMetrics: true })
    .fetchNext();
  assert.match(indexMetrics, /\/age\/\?/, indexMetrics);
  assert.match(indexMetrics, /\/id ASC/, indexMetrics);
});
