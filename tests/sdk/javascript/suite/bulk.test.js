"use strict";
const assert = require("node:assert/strict");
const { describe, it, before } = require("node:test");
const { unique, openDatabase, newContainer } = require("../support/suite");

describe("bulk", () => {
  let database;
  before(async () => ({ database } = await openDatabase()));

  for (const [name, definition] of [
    ["version 1 keys", { partitionKey: { paths: ["/pk"], version: 1 }, throughput: 25000 }],
    ["version 2 keys", { partitionKey: { paths: ["/pk"], version: 2 }, throughput: 25000 }],
  ]) {
    describe(name, () => {
      let container;
      before(async () => (container = await newContainer(database, definition)));

      const operations = () => [
        { operationType: "Create", partitionKey: "a", resourceBody: { id: unique(), pk: "a" } },
        { operationType: "Upsert", partitionKey: "b", resourceBody: { id: "upsert", pk: "b" } },
        { operationType: "Read", partitionKey: "c", id: "there" },
        { operationType: "Replace", partitionKey: "d", id: "there", resourceBody: { id: "there", pk: "d", value: 2 } },
        { operationType: "Delete", partitionKey: "e", id: "there" },
        {
          operationType: "Patch",
          partitionKey: "f",
          id: "there",
          resourceBody: { operations: [{ op: "incr", path: "/value", value: 1 }] },
        },
        { operationType: "Read", partitionKey: "g", id: "missing" },
        { operationType: "Create", partitionKey: "c", resourceBody: { id: "there", pk: "c" } },
      ];
      const expected = [201, 201, 200, 200, 204, 200, 404, 409];

      async function prepare() {
        for (const pk of ["c", "d", "e", "f"]) await container.items.upsert({ id: "there", pk, value: 1 });
        await container.item("upsert", "b").delete().catch(() => {});
      }

      it("runs with executeBulkOperations", async () => {
        await prepare();
        const results = await container.items.executeBulkOperations(operations());
        assert.deepEqual(results.map((one) => one.response?.statusCode ?? one.error?.code), expected);
        assert.equal(results[2].response.resourceBody.value, 1);
        assert.equal(results[5].response.resourceBody.value, 2);
        assert.ok(results[0].response.requestCharge > 0);
        assert.ok(results[0].response.eTag);
      });

      it("runs with the older bulk", async () => {
        await prepare();
        const results = await container.items.bulk(operations(), { continueOnError: true });
        assert.deepEqual(results.map((one) => one.statusCode), expected);
      });

      it("writes many items over many partitions", async () => {
        const input = Array.from({ length: 300 }, (_, number) => ({
          operationType: "Create",
          partitionKey: `key ${number % 50}`,
          resourceBody: { id: `${number}`, pk: `key ${number % 50}`, number },
        }));
        const results = await container.items.executeBulkOperations(input);
        assert.ok(results.every((one) => one.response?.statusCode === 201));
        assert.equal((await container.item("123", "key 23").read()).resource.number, 123);
      });

      it("accepts every kind of key", async () => {
        const id = unique();
        const keys = ["text", 5, true, null, "日本"];
        const input = keys.map((pk) => ({ operationType: "Create", partitionKey: pk, resourceBody: { id, pk } }));
        const results = await container.items.executeBulkOperations(input);
        assert.deepEqual(results.map((one) => one.response?.statusCode ?? one.error?.message), keys.map(() => 201));
        for (const pk of keys) assert.equal((await container.item(id, pk).read()).statusCode, 200, String(pk));
      });
    });
  }

  it("works with hierarchical keys", async () => {
    const partitionKey = { paths: ["/a", "/b"], version: 2, kind: "MultiHash" };
    const container = await newContainer(database, { partitionKey, throughput: 25000 });
    const input = Array.from({ length: 20 }, (_, number) => ({
      operationType: "Create",
      partitionKey: [`${number}`, "x"],
      resourceBody: { id: "same", a: `${number}`, b: "x" },
    }));
    const results = await container.items.executeBulkOperations(input);
    assert.ok(results.every((one) => one.response?.statusCode === 201));
    assert.equal((await container.item("same", ["7", "x"]).read()).resource.a, "7");
  });
});
