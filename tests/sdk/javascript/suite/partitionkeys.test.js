"use strict";
const assert = require("node:assert/strict");
const { describe, it, before } = require("node:test");
const { PartitionKeyBuilder } = require("@azure/cosmos");
const { unique, openDatabase, newContainer, fails } = require("../support/suite");

const KEYS = ["abc", "", 5, 0, -7.5, 9007199254740991, true, false, null, "Straße 東京 😀", 'a "quoted" \\', "k".repeat(1000)];

describe("partition keys", () => {
  let database;
  before(async () => ({ database } = await openDatabase()));

  for (const [name, partitionKey] of [
    ["no version", { paths: ["/pk"] }],
    ["version 1", { paths: ["/pk"], version: 1 }],
    ["version 2", { paths: ["/pk"], version: 2 }],
  ]) {
    describe(name, () => {
      let container;
      before(async () => (container = await newContainer(database, { partitionKey, throughput: 20000 })));

      for (const pk of KEYS) {
        it(`may be ${JSON.stringify(pk).slice(0, 30)}`, async () => {
          const id = unique();
          await container.items.create({ id, pk, value: 1 });
          const item = container.item(id, pk);
          assert.equal((await item.read()).resource.value, 1);
          assert.equal((await container.items.upsert({ id, pk, value: 2 })).statusCode, 200);
          assert.equal((await item.replace({ id, pk, value: 3 })).resource.value, 3);
          assert.equal((await item.patch([{ op: "incr", path: "/value", value: 1 }])).resource.value, 4);
          await item.delete();
          assert.equal((await item.read()).statusCode, 404);
        });
      }

      it("may be undefined", async () => {
        const id = unique();
        await container.items.create({ id, value: 1 });
        const item = container.item(id, undefined);
        assert.equal((await item.read()).resource.value, 1);
        assert.equal((await item.replace({ id, value: 2 })).resource.value, 2);
        await item.delete();
      });

      it("are kept apart by kind", async () => {
        const id = unique();
        const kinds = ["1", 1, true, null, ""];
        for (const [value, pk] of kinds.entries()) await container.items.create({ id, pk, value });
        for (const [value, pk] of kinds.entries()) {
          assert.equal((await container.item(id, pk).read()).resource.value, value);
        }
      });
    });
  }

  it("work with nested and quoted paths", async () => {
    const nested = await newContainer(database, { partitionKey: { paths: ["/address/zip"], version: 2 } });
    await nested.items.create({ id: "a", address: { zip: "98052" } });
    assert.equal((await nested.item("a", "98052").read()).resource.id, "a");
    const quoted = await newContainer(database, { partitionKey: { paths: ['/"first level"/second'], version: 2 } });
    await quoted.items.create({ id: "a", "first level": { second: "x" } });
    assert.equal((await quoted.item("a", "x").read()).resource.id, "a");
  });

  describe("of three levels", () => {
    let container;
    before(async () => {
      const partitionKey = { paths: ["/a", "/b", "/c"], version: 2, kind: "MultiHash" };
      container = await newContainer(database, { partitionKey });
    });

    for (const key of [["x", "y", "z"], ["x", 5, true], ["x", null, ""], ["ü", "日本", "😀"]]) {
      it(`may be ${JSON.stringify(key)}`, async () => {
        const id = unique();
        const [a, b, c] = key;
        await container.items.create({ id, a, b, c, value: 1 });
        const item = container.item(id, key);
        assert.equal((await item.read()).resource.value, 1);
        assert.equal((await item.replace({ id, a, b, c, value: 2 })).resource.value, 2);
        assert.equal((await item.patch([{ op: "set", path: "/value", value: 3 }])).resource.value, 3);
        await item.delete();
      });
    }

    it("may have undefined components", async () => {
      const id = unique();
      await container.items.create({ id, a: "x" });
      const key = new PartitionKeyBuilder().addValue("x").addNoneValue().addNoneValue().build();
      assert.equal((await container.item(id, key).read()).resource.id, id);
    });

    it("must be complete for a point operation", async () => {
      await fails(container.item("a", ["x", "y"]).delete(), 400);
    });
  });
});
