"use strict";
const assert = require("node:assert/strict");
const { describe, it, before } = require("node:test");
const { unique, openDatabase, newContainer, fails } = require("../support/suite");

const DEFAULT_INDEXING_POLICY = {
  indexingMode: "consistent",
  automatic: true,
  includedPaths: [{ path: "/*" }],
  excludedPaths: [{ path: '/"_etag"/?' }],
};

describe("containers", () => {
  let database;
  before(async () => ({ database } = await openDatabase()));

  it("are created, read and deleted", async () => {
    const id = unique("c");
    const created = await database.containers.create({ id, partitionKey: { paths: ["/pk"] } });
    assert.equal(created.statusCode, 201);
    const { resource } = await created.container.read();
    assert.equal(resource.id, id);
    assert.deepEqual(resource.partitionKey.paths, ["/pk"]);
    assert.equal(resource.partitionKey.kind, "Hash");
    assert.deepEqual(resource.indexingPolicy, DEFAULT_INDEXING_POLICY);
    assert.deepEqual(resource.geospatialConfig, { type: "Geography" });
    assert.equal(resource.conflictResolutionPolicy.mode, "LastWriterWins");
    assert.ok(resource._self.endsWith(`/colls/${resource._rid}/`));
    assert.equal((await created.container.delete()).statusCode, 204);
    await fails(created.container.read(), 404);
  });

  it("hash with version 1 when the client names none", async () => {
    const container = await newContainer(database);
    const { resource } = await container.read();
    assert.equal(resource.partitionKey.version ?? 1, 1);
    const ranges = (await container.readPartitionKeyRanges().fetchAll()).resources;
    assert.equal(ranges[0].minInclusive, "");
    assert.equal(ranges.at(-1).maxExclusive, "FF");
  });

  for (const version of [1, 2]) {
    it(`keep partition key version ${version}`, async () => {
      const container = await newContainer(database, { partitionKey: { paths: ["/pk"], version } });
      assert.equal((await container.read()).resource.partitionKey.version ?? 1, version);
    });
  }

  it("without any partition key get the system path", async () => {
    const { container } = await database.containers.create({ id: unique("none") });
    const { resource } = await container.read();
    assert.deepEqual(resource.partitionKey.paths, ["/_partitionKey"]);
    await container.items.create({ id: "a" });
    assert.equal((await container.item("a", undefined).read()).resource.id, "a");
  });

  it("accept the partition key as a path", async () => {
    const { container } = await database.containers.create({ id: unique("c"), partitionKey: "/tenant" });
    assert.deepEqual((await container.read()).resource.partitionKey.paths, ["/tenant"]);
  });

  for (const paths of [["/a", "/b"], ["/a", "/b", "/c"]]) {
    it(`have hierarchical keys of ${paths.length} levels`, async () => {
      const partitionKey = { paths, version: 2, kind: "MultiHash" };
      const container = await newContainer(database, { partitionKey });
      assert.deepEqual((await container.read()).resource.partitionKey, partitionKey);
    });
  }

  it("refuse four levels", async () => {
    const partitionKey = { paths: ["/a", "/b", "/c", "/d"], version: 2, kind: "MultiHash" };
    await fails(database.containers.create({ id: unique("bad"), partitionKey }), 400, {
      message: "Too many partition key paths (4) specified",
    });
  });

  it("are created if they do not exist", async () => {
    const id = unique("c");
    const definition = { id, partitionKey: { paths: ["/pk"] } };
    assert.equal((await database.containers.createIfNotExists(definition)).statusCode, 201);
    assert.equal((await database.containers.createIfNotExists(definition)).statusCode, 200);
    await fails(database.containers.create(definition), 409);
  });

  it("are listed", async () => {
    const made = [await newContainer(database), await newContainer(database), await newContainer(database)];
    const { resources } = await database.containers.readAll().fetchAll();
    for (const { id } of made) assert.ok(resources.some((one) => one.id === id));
    const first = await database.containers.readAll({ maxItemCount: 1 }).fetchNext();
    assert.equal(first.resources.length, 1);
    assert.equal(first.hasMoreResults, true);
  });

  it("keep unique keys, TTL, indexing and computed properties", async () => {
    const definition = {
      uniqueKeyPolicy: { uniqueKeys: [{ paths: ["/email"] }, { paths: ["/a", "/b/c"] }] },
      defaultTtl: 3600,
      indexingPolicy: {
        ...DEFAULT_INDEXING_POLICY,
        compositeIndexes: [
          [
            { path: "/a", order: "ascending" },
            { path: "/b", order: "descending" },
          ],
        ],
      },
      computedProperties: [{ name: "lower", query: "SELECT VALUE LOWER(c.name) FROM c" }],
      geospatialConfig: { type: "Geography" },
    };
    const container = await newContainer(database, definition);
    const { resource } = await container.read();
    for (const [name, value] of Object.entries(definition)) assert.deepEqual(resource[name], value, name);
  });

  it("are replaced", async () => {
    const container = await newContainer(database);
    const { resource } = await container.read();
    const replaced = await container.replace({
      ...resource,
      defaultTtl: 100,
      indexingPolicy: { ...DEFAULT_INDEXING_POLICY, excludedPaths: [{ path: "/big/*" }, { path: '/"_etag"/?' }] },
    });
    assert.equal(replaced.statusCode, 200);
    assert.equal(replaced.resource.defaultTtl, 100);
    assert.equal(replaced.resource._rid, resource._rid);
    assert.notEqual(replaced.resource._etag, resource._etag);
    assert.ok(replaced.resource.indexingPolicy.excludedPaths.some(({ path }) => path === "/big/*"));
  });

  it("cannot change their partition key", async () => {
    const container = await newContainer(database);
    await fails(container.replace({ id: container.id, partitionKey: { paths: ["/other"] } }), 400);
  });

  it("refuse spatial indexes without types", async () => {
    const indexingPolicy = { ...DEFAULT_INDEXING_POLICY, spatialIndexes: [{ path: "/p/*", types: [] }] };
    await fails(
      database.containers.create({ id: unique("bad"), partitionKey: { paths: ["/pk"] }, indexingPolicy }),
      400,
      { message: "The spatial data types array cannot be empty" },
    );
  });

  it("report their quota", async () => {
    const container = await newContainer(database);
    const { headers } = await container.read({ populateQuotaInfo: true });
    assert.match(headers["x-ms-resource-quota"], /collectionSize=\d+;/);
    assert.match(headers["x-ms-resource-usage"], /documentsCount=0;/);
    assert.equal(headers["x-ms-documentdb-collection-index-transformation-progress"], "100");
  });

  it("have feed ranges that cover everything", async () => {
    const container = await newContainer(database, { partitionKey: { paths: ["/pk"], version: 2 }, throughput: 30000 });
    const ranges = [...(await container.getFeedRanges())].sort((a, b) => (a.minInclusive < b.minInclusive ? -1 : 1));
    assert.ok(ranges.length >= 3);
    assert.equal(ranges[0].minInclusive, "");
    assert.equal(ranges.at(-1).maxExclusive, "FF");
    for (let index = 1; index < ranges.length; index++) {
      assert.equal(ranges[index].minInclusive, ranges[index - 1].maxExclusive);
    }
  });

  it("report the fields of their partition key ranges", async () => {
    const container = await newContainer(database, { throughput: 30000 });
    const { resources } = await container.readPartitionKeyRanges().fetchAll();
    const fractions = resources.reduce((sum, range) => sum + range.throughputFraction, 0);
    assert.ok(Math.abs(fractions - 1) < 1e-9);
    for (const range of resources) {
      assert.match(range.id, /^\d+$/);
      assert.deepEqual(range.parents, []);
      assert.equal(range.status, "online");
    }
  });
});
