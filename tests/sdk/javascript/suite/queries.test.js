"use strict";
const assert = require("node:assert/strict");
const { describe, it, before } = require("node:test");
const { openDatabase, newContainer, fails } = require("../support/suite");

for (const [name, throughput] of [
  ["one partition", 400],
  ["many partitions", 30000],
]) {
  describe(`queries over ${name}`, () => {
    let client, database, container;
    before(async () => {
      ({ client, database } = await openDatabase());
      container = await newContainer(database, { partitionKey: { paths: ["/pk"], version: 2 }, throughput });
      for (let number = 0; number < 30; number++) {
        await container.items.create({ id: `${number}`, pk: `key ${number % 6}`, number, category: number % 3 });
      }
    });
    const rows = async (query, options) => (await container.items.query(query, options).fetchAll()).resources;
    const numbers = Array.from({ length: 30 }, (_, number) => number);
    const sorted = (list) => [...list].sort((a, b) => a - b);

    it("reads all", async () => {
      const { resources } = await container.items.readAll().fetchAll();
      assert.deepEqual(sorted(resources.map((item) => item.number)), numbers);
    });

    it("filters within a key and across keys", async () => {
      const own = await rows("SELECT * FROM c", { partitionKey: "key 1" });
      assert.deepEqual(sorted(own.map((item) => item.number)), [1, 7, 13, 19, 25]);
      const high = await rows({
        query: "SELECT VALUE c.number FROM c WHERE c.number >= @low",
        parameters: [{ name: "@low", value: 25 }],
      });
      assert.deepEqual(sorted(high), [25, 26, 27, 28, 29]);
    });

    for (const [query, expected] of [
      ["SELECT VALUE c.number FROM c ORDER BY c.number", numbers],
      ["SELECT VALUE c.number FROM c ORDER BY c.number DESC", [...numbers].reverse()],
      ["SELECT TOP 3 VALUE c.number FROM c ORDER BY c.number", [0, 1, 2]],
      ["SELECT VALUE c.number FROM c ORDER BY c.number OFFSET 5 LIMIT 3", [5, 6, 7]],
      ["SELECT VALUE COUNT(1) FROM c", [30]],
      ["SELECT VALUE SUM(c.number) FROM c", [435]],
      ["SELECT VALUE AVG(c.number) FROM c", [14.5]],
      ["SELECT DISTINCT VALUE c.category FROM c ORDER BY c.category", [0, 1, 2]],
    ]) {
      it(query, async () => assert.deepEqual(await rows(query), expected));
    }

    it("groups", async () => {
      const groups = await rows("SELECT c.category, COUNT(1) AS n, MAX(c.number) AS m FROM c GROUP BY c.category");
      assert.deepEqual(
        groups.sort((a, b) => a.category - b.category),
        [
          { category: 0, n: 10, m: 27 },
          { category: 1, n: 10, m: 28 },
          { category: 2, n: 10, m: 29 },
        ],
      );
    });

    it("pages with a continuation", async () => {
      const seen = [];
      let continuationToken;
      do {
        const iterator = container.items.query("SELECT * FROM c", {
          partitionKey: "key 2",
          maxItemCount: 2,
          continuationToken,
        });
        const page = await iterator.fetchNext();
        seen.push(...page.resources.map((item) => item.number));
        continuationToken = page.continuationToken;
      } while (continuationToken);
      assert.deepEqual(sorted(seen), [2, 8, 14, 20, 26]);
    });

    it("reports syntax errors", () => fails(rows("SELECT FROM WHERE"), 400, { message: "Syntax error" }));

    it("finds databases and containers", async () => {
      const spec = (value) => ({ query: "SELECT * FROM root r WHERE r.id = @id", parameters: [{ name: "@id", value }] });
      const databases = await client.databases.query(spec(database.id)).fetchAll();
      assert.deepEqual(databases.resources.map((one) => one.id), [database.id]);
      const containers = await database.containers.query(spec(container.id)).fetchAll();
      assert.deepEqual(containers.resources.map((one) => one.id), [container.id]);
    });
  });
}
