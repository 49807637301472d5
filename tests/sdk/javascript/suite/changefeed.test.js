"use strict";
const assert = require("node:assert/strict");
const { describe, it, before } = require("node:test");
const { ChangeFeedMode, ChangeFeedStartFrom } = require("@azure/cosmos");
const { openDatabase, newContainer } = require("../support/suite");

const EVERY_VERSION = { changeFeedPolicy: { retentionDuration: 10 } };

/** Reads to the end: what changed, and where to go on. */
async function changes(container, options) {
  const feed = container.items.getChangeFeedIterator(options);
  const seen = [];
  let token;
  // A range without news answers 304; the iterator goes over all ranges in turn.
  for (let quiet = 0; quiet < 3; ) {
    const page = await feed.readNext();
    quiet = page.statusCode === 304 ? quiet + 1 : 0;
    if (page.statusCode !== 304) seen.push(...page.result);
    token = page.continuationToken;
  }
  return { seen, token };
}

const put = (container, id, n, pk = "a") => container.items.upsert({ id, pk, n });

describe("the change feed", () => {
  let database;
  before(async () => ({ database } = await openDatabase()));

  it("has each item at its last change", async () => {
    const container = await newContainer(database);
    for (const [id, n] of [["1", 1], ["2", 1], ["1", 2]]) await put(container, id, n);
    const from = ChangeFeedStartFrom.Beginning();
    const { seen, token } = await changes(container, { changeFeedStartFrom: from, maxItemCount: 1 });
    assert.deepEqual(seen.map((item) => [item.id, item.n]), [["2", 1], ["1", 2]]);
    await put(container, "2", 2);
    const later = await changes(container, { changeFeedStartFrom: ChangeFeedStartFrom.Continuation(token) });
    assert.deepEqual(later.seen.map((item) => item.n), [2]);
    const ofKey = await changes(container, { changeFeedStartFrom: ChangeFeedStartFrom.Beginning("b") });
    assert.deepEqual(ofKey.seen, []);
  });

  it("has every version and delete where they are kept", async () => {
    const container = await newContainer(database, EVERY_VERSION);
    const mode = { changeFeedMode: ChangeFeedMode.AllVersionsAndDeletes };
    const start = await changes(container, { ...mode, changeFeedStartFrom: ChangeFeedStartFrom.Now() });
    assert.deepEqual(start.seen, []);
    for (const [id, n] of [["1", 1], ["2", 1], ["1", 2]]) await put(container, id, n);
    await container.item("1", "a").delete();
    const from = ChangeFeedStartFrom.Continuation(start.token);
    const { seen } = await changes(container, { ...mode, changeFeedStartFrom: from });
    assert.deepEqual(
      seen.map(({ current, metadata }) => [metadata.operationType, current?.id ?? metadata.id, current?.n]),
      [["create", "1", 1], ["create", "2", 1], ["replace", "1", 2], ["delete", "1", undefined]],
    );
    assert.ok(seen.every((change) => change.previous === undefined));
  });
});
