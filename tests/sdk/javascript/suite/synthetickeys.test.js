"use strict";
const assert = require("node:assert/strict");
const { describe, it, before } = require("node:test");
const { unique, openDatabase, newContainer, fails } = require("../support/suite");

const VIN = "1HGCM82633A004352";
const CONCATENATED = { format: 1, kind: "concatenate", parts: ["/deviceId", "/date"] };
const RANDOM = { format: 1, kind: "randomSuffix", parts: ["/date"], suffix: { count: 400 } };
const PRECALCULATED = { format: 1, kind: "precalculatedSuffix", parts: ["/date"], suffix: { of: ["/VIN"], count: 400 } };
const partitionKey = { paths: ["/partitionKey"], version: 2 };

describe("synthetic keys", () => {
  let database;
  let plain;
  let Definition;
  before(async () => {
    ({ database } = await openDatabase());
    plain = await newContainer(database, { partitionKey });
    ({ Definition } = await import("../../../../clients/javascript/src/index.js"));
  });

  it("concatenated by the application", async () => {
    const item = { id: unique(), deviceId: "abc-123", date: 2018 };
    new Definition(CONCATENATED).insertInto(item);
    await plain.items.create(item);
    assert.equal((await plain.item(item.id, "abc-123-2018").read()).resource.partitionKey, "abc-123-2018");
  });

  it("with random suffixes by the application", async () => {
    const definition = new Definition(RANDOM);
    const marker = unique();
    for (let number = 0; number < 20; number++) {
      const item = { id: `${marker}-${number}`, date: "2018-08-09", marker };
      definition.insertInto(item);
      await plain.items.create(item);
    }
    const keys = definition.keysFor({ date: "2018-08-09" }).map((key) => key.value);
    assert.deepEqual(keys, Array.from({ length: 400 }, (_, number) => `2018-08-09.${number + 1}`));
    const query = { query: "SELECT VALUE c.partitionKey FROM c WHERE c.marker = @m", parameters: [{ name: "@m", value: marker }] };
    const { resources } = await plain.items.query(query).fetchAll();
    assert.equal(resources.length, 20);
    assert.ok(resources.every((key) => keys.includes(key)));
  });

  it("let a vehicle be read back with one point read", async () => {
    const definition = new Definition(PRECALCULATED);
    const item = { id: unique(), date: "2018-08-09", VIN };
    definition.insertInto(item);
    await plain.items.create(item);
    const keys = definition.keysFor({ date: "2018-08-09", VIN });
    assert.deepEqual(keys.map((key) => key.value), ["2018-08-09.353"]);
    assert.equal((await plain.item(item.id, keys[0].value).read()).resource.VIN, VIN);
  });

  it("are made by the server", async () => {
    const container = await newContainer(database, { partitionKey, orrerySyntheticKey: PRECALCULATED });
    const { resource: shown } = await container.read();
    assert.deepEqual(shown.orrerySyntheticKey, PRECALCULATED);
    const { resource: created } = await container.items.create({ id: "1", date: "2018-08-09", VIN });
    assert.equal(created.partitionKey, "2018-08-09.353");
    assert.equal((await container.item("1", "2018-08-09.353").read()).resource.VIN, VIN);
    assert.equal((await container.items.upsert({ id: "1", date: "2018-08-09", VIN, n: 2 })).statusCode, 200);
    await fails(container.items.create({ id: "2", date: "2018-08-09", VIN, partitionKey: "2018-08-09.1" }), 400);
    await fails(container.items.create({ id: "2", VIN }), 400);
    const query = `SELECT VALUE c.n FROM c WHERE c.date = "2018-08-09" AND c.VIN = "${VIN}"`;
    assert.deepEqual((await container.items.query(query).fetchAll()).resources, [2]);
    // What a client reads it may send back; leaving the definition out keeps it, null takes it away.
    await container.replace(shown);
    const { orrerySyntheticKey, ...without } = shown;
    assert.deepEqual((await container.replace(without)).resource.orrerySyntheticKey, PRECALCULATED);
    assert.equal((await container.replace({ ...shown, orrerySyntheticKey: null })).resource.orrerySyntheticKey, undefined);
  });

  it("are drawn by the server, in bulk too", async () => {
    const container = await newContainer(database, { partitionKey, orrerySyntheticKey: RANDOM });
    const operations = Array.from({ length: 30 }, (_, number) => ({
      operationType: "Create",
      resourceBody: { id: String(number), date: "2018-08-09" },
    }));
    const results = await container.items.bulk(operations);
    assert.ok(results.every((result) => result.statusCode === 201));
    const { resources } = await container.items.query("SELECT * FROM c WHERE c.date = '2018-08-09'").fetchAll();
    assert.equal(resources.length, 30);
    assert.ok(resources.every((item) => /^2018-08-09\.([1-9]\d?|[1-3]\d\d|400)$/.test(item.partitionKey)));
  });
});
