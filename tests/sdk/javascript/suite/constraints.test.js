"use strict";
const assert = require("node:assert/strict");
const { describe, it, before } = require("node:test");
const { setTimeout: sleep } = require("node:timers/promises");
const { unique, openDatabase, newContainer, fails } = require("../support/suite");

const EXPIRY_MS_MAX = 10_000;

async function goneInTime(item) {
  const deadline = Date.now() + EXPIRY_MS_MAX;
  while (Date.now() < deadline) {
    if ((await item.read()).statusCode === 404) return;
    await sleep(100);
  }
  assert.fail(`${item.id} is still there`);
}

describe("unique keys", () => {
  let container;
  before(async () => {
    const uniqueKeyPolicy = { uniqueKeys: [{ paths: ["/email"] }] };
    container = await newContainer((await openDatabase()).database, { uniqueKeyPolicy });
  });

  it("hold on every way of writing", async () => {
    const pk = unique();
    await container.items.create({ id: "1", pk, email: "a" });
    const message = "Unique index constraint violation";
    await fails(container.items.create({ id: "2", pk, email: "a" }), 409, { message });
    const { item } = await container.items.create({ id: "2", pk, email: "b" });
    await fails(item.replace({ id: "2", pk, email: "a" }), 409, { message });
    await fails(container.items.upsert({ id: "2", pk, email: "a" }), 409, { message });
    await fails(item.patch([{ op: "set", path: "/email", value: "a" }]), 409, { message });
    await container.item("1", pk).delete();
    await item.replace({ id: "2", pk, email: "a" });
  });

  it("count per partition key", async () => {
    await container.items.create({ id: "1", pk: unique(), email: "a" });
    await container.items.create({ id: "1", pk: unique(), email: "a" });
  });
});

describe("time to live", () => {
  let database;
  before(async () => ({ database } = await openDatabase()));

  it("ends items by default and by their own value", async () => {
    const container = await newContainer(database, { defaultTtl: 2 });
    const { item: byDefault } = await container.items.create({ id: "default", pk: "x" });
    const { item: own } = await container.items.create({ id: "own", pk: "x", ttl: 1 });
    const { item: never } = await container.items.create({ id: "never", pk: "x", ttl: -1 });
    await goneInTime(own);
    await goneInTime(byDefault);
    assert.equal((await never.read()).statusCode, 200);
    assert.equal((await container.items.create({ id: "own", pk: "x" })).statusCode, 201);
  });

  it("refuses odd values", async () => {
    const container = await newContainer(database, { defaultTtl: -1 });
    for (const ttl of [0, -2, 1.5, "10", null]) {
      await fails(container.items.create({ id: unique(), pk: "x", ttl }), 400);
    }
  });

  it("is switched off and on by a replace", async () => {
    const container = await newContainer(database);
    const { resource } = await container.read();
    const { resource: on } = await container.replace({ ...resource, defaultTtl: 1 });
    assert.equal(on.defaultTtl, 1);
    const { item } = await container.items.create({ id: "a", pk: "x" });
    await goneInTime(item);
    const { defaultTtl, ...off } = on;
    assert.equal((await container.replace(off)).resource.defaultTtl, undefined);
  });
});
