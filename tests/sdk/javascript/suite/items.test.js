"use strict";
const assert = require("node:assert/strict");
const { describe, it, before } = require("node:test");
const { unique, openDatabase, newContainer, fails, withoutSystemProperties } = require("../support/suite");

const STALE = '"00000000-0000-0000-0000-000000000000"';
const ifMatch = (condition) => ({ accessCondition: { type: "IfMatch", condition } });
const ifNoneMatch = (condition) => ({ accessCondition: { type: "IfNoneMatch", condition } });

describe("items", () => {
  let database, container;
  before(async () => {
    ({ database } = await openDatabase());
    container = await newContainer(database);
  });

  it("are created", async () => {
    const body = { id: unique(), pk: "a", list: [1, "two", null], deep: { er: true } };
    const created = await container.items.create(body);
    assert.equal(created.statusCode, 201);
    assert.deepEqual(withoutSystemProperties(created.resource), body);
    assert.equal(created.etag, created.resource._etag);
    assert.equal(created.resource._attachments, "attachments/");
    assert.ok(created.requestCharge > 0);
    assert.ok(created.headers["x-ms-session-token"]);
    assert.ok(created.activityId);
  });

  it("get an id from the client", async () => {
    const { resource } = await container.items.create({ pk: "a" });
    assert.match(resource.id, /^[0-9a-f-]{36}$/);
    await fails(container.items.create({ pk: "a" }, { disableAutomaticIdGeneration: true }), 400);
  });

  it("are read", async () => {
    const { resource, item } = await container.items.create({ id: unique(), pk: "a", value: 1 });
    const read = await item.read();
    assert.equal(read.statusCode, 200);
    assert.deepEqual(read.resource, resource);
    assert.equal(read.requestCharge, 1);
  });

  it("are reported missing", async () => {
    const read = await container.item(unique("missing"), "a").read();
    assert.equal(read.statusCode, 404);
    assert.equal(read.resource, undefined);
    await fails(container.item(unique("missing"), "a").delete(), 404, { message: "NotFound" });
    const id = unique("missing");
    await fails(container.item(id, "a").replace({ id, pk: "a" }), 404);
  });

  it("conflict", async () => {
    const { resource } = await container.items.create({ id: unique(), pk: "a" });
    const error = await fails(container.items.create({ id: resource.id, pk: "a" }), 409);
    assert.equal(error.body.code, "Conflict");
    await container.items.create({ id: resource.id, pk: "b" });
  });

  it("are upserted", async () => {
    const id = unique();
    const inserted = await container.items.upsert({ id, pk: "a", value: 1 });
    assert.equal(inserted.statusCode, 201);
    const replaced = await container.items.upsert({ id, pk: "a", value: 2 });
    assert.equal(replaced.statusCode, 200);
    assert.equal(replaced.resource._rid, inserted.resource._rid);
  });

  it("are replaced", async () => {
    const { resource, item } = await container.items.create({ id: unique(), pk: "a", value: 1 });
    const replaced = await item.replace({ id: resource.id, pk: "a", value: 2 });
    assert.equal(replaced.statusCode, 200);
    assert.equal(replaced.resource.value, 2);
    const other = unique("renamed");
    const renamed = await item.replace({ id: other, pk: "a", value: 3 });
    assert.equal(renamed.resource._rid, resource._rid);
    assert.equal((await item.read()).statusCode, 404);
    assert.equal((await container.item(other, "a").read()).resource.value, 3);
  });

  it("are deleted", async () => {
    const { item } = await container.items.create({ id: unique(), pk: "a" });
    assert.equal((await item.delete()).statusCode, 204);
    assert.equal((await item.read()).statusCode, 404);
  });

  it("are guarded by If-Match", async () => {
    const { resource, item } = await container.items.create({ id: unique(), pk: "a" });
    const body = { id: resource.id, pk: "a", value: 1 };
    const replaced = await item.replace(body, ifMatch(resource._etag));
    const error = await fails(item.replace(body, ifMatch(resource._etag)), 412);
    assert.equal(error.body.code, "PreconditionFailed");
    await fails(container.items.upsert(body, ifMatch(STALE)), 412);
    await fails(item.patch([{ op: "set", path: "/v", value: 1 }], ifMatch(STALE)), 412);
    await fails(item.delete(ifMatch(STALE)), 412);
    await item.delete(ifMatch(replaced.resource._etag));
    assert.equal((await container.items.upsert(body, ifMatch(STALE))).statusCode, 201);
  });

  it("are read only if changed with If-None-Match", async () => {
    const { resource, item } = await container.items.create({ id: unique(), pk: "a" });
    const unchanged = await item.read(ifNoneMatch(resource._etag));
    assert.equal(unchanged.statusCode, 304);
    assert.ok(!unchanged.resource);
    await item.replace({ id: resource.id, pk: "a", value: 1 });
    assert.equal((await item.read(ifNoneMatch(resource._etag))).resource.value, 1);
  });

  it("may have unusual ids", async () => {
    const ids = [
      "with space", "percent%", "percent%20encoded", "plus+plus", "quote'", 'quote"', "ünïcödé", "日本語", "😀",
      "a=b&c;d,e", "colon:at@", "[]{}()<>", "*!~^|`", "$", "a".repeat(255),
    ];
    for (const id of ids) {
      await container.items.create({ id, pk: "odd", value: 1 });
      assert.equal((await container.item(id, "odd").read()).resource?.id, id, id);
      await container.item(id, "odd").replace({ id, pk: "odd", value: 2 });
      await container.item(id, "odd").patch([{ op: "incr", path: "/value", value: 1 }]);
      assert.equal((await container.item(id, "odd").read()).resource.value, 3, id);
      await container.item(id, "odd").delete();
    }
  });

  it("keep their values", async () => {
    const value = {
      numbers: [0, -1, 0.1, 5e-324, Number.MAX_VALUE, Number.MAX_SAFE_INTEGER],
      text: 'quote " backslash \\ newline \n unicode 日本 😀 \u2028',
      empty: ["", [], {}, null],
      names: { "": 1, "a.b": 2, "a/b": 3, $x: 4 },
    };
    const { resource, item } = await container.items.create({ id: unique(), pk: "values", value });
    assert.deepEqual(resource.value, value);
    assert.deepEqual((await item.read()).resource.value, value);
  });

  it("are at most 2 MB", async () => {
    const size = 2 * 1024 * 1024;
    const id = unique();
    await container.items.create({ id, pk: "large", filler: "f".repeat(size - 4096) });
    assert.equal((await container.item(id, "large").read()).resource.filler.length, size - 4096);
    const error = await fails(container.items.create({ id: unique(), pk: "large", filler: "f".repeat(size) }), 413);
    assert.equal(error.body.code, "RequestEntityTooLarge");
  });

  it("of a missing container have no owner", async () => {
    const missing = database.container(unique("missing"));
    await fails(missing.items.create({ id: "a", pk: "x" }), 404);
    const known = await newContainer(database);
    await known.items.create({ id: "a", pk: "x" });
    await known.delete();
    await fails(known.items.create({ id: "b", pk: "x" }), 404, { substatus: 1003 });
    await fails(known.item("a", "x").delete(), 404, { substatus: 1003 });
  });

  it("are deleted by partition key", async () => {
    const own = await newContainer(database, { partitionKey: { paths: ["/pk"], version: 2 } });
    for (let number = 0; number < 10; number++) {
      await own.items.create({ id: `${number}`, pk: "gone" });
      await own.items.create({ id: `${number}`, pk: "kept" });
    }
    await own.deleteAllItemsForPartitionKey("gone");
    assert.equal((await own.item("3", "gone").read()).statusCode, 404);
    assert.equal((await own.item("3", "kept").read()).statusCode, 200);
  });

  it("survive many parallel requests", async () => {
    const numbers = Array.from({ length: 150 }, (_, number) => number);
    await Promise.all(numbers.map((n) => container.items.create({ id: `parallel ${n}`, pk: `${n % 7}`, n })));
    const read = await Promise.all(numbers.map((n) => container.item(`parallel ${n}`, `${n % 7}`).read()));
    assert.deepEqual(read.map(({ resource }) => resource.n), numbers);
  });

  it("lose no increment", async () => {
    const { item } = await container.items.create({ id: unique(), pk: "count", value: 0 });
    const increment = [{ op: "incr", path: "/value", value: 1 }];
    await Promise.all(Array.from({ length: 60 }, () => item.patch(increment)));
    assert.equal((await item.read()).resource.value, 60);
  });

  it("carry session tokens", async () => {
    const { client: session, database: own } = await openDatabase({ consistencyLevel: "Session" });
    const other = await newContainer(own);
    const tokens = [];
    for (let number = 0; number < 4; number++) {
      const { headers } = await other.items.upsert({ id: "a", pk: "x", number });
      tokens.push(headers["x-ms-session-token"]);
    }
    assert.equal(new Set(tokens).size, 4);
    assert.equal((await session.database(own.id).container(other.id).item("a", "x").read()).resource.number, 3);
    const read = await other.item("a", "x").read({ sessionToken: tokens[3] });
    assert.equal(read.resource.number, 3);
  });
});
