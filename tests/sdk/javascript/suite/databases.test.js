"use strict";
const assert = require("node:assert/strict");
const { describe, it } = require("node:test");
const { unique, openClient, fails } = require("../support/suite");

const client = openClient();

describe("databases", () => {
  it("are created, read and deleted", async () => {
    const id = unique("db");
    const created = await client.databases.create({ id });
    assert.equal(created.statusCode, 201);
    assert.equal(created.resource.id, id);
    assert.ok(created.requestCharge > 0);
    assert.ok(created.activityId);
    assert.equal(created.etag, created.resource._etag);
    const { resource } = await client.database(id).read();
    assert.equal(resource._self, `dbs/${resource._rid}/`);
    assert.equal(resource._colls, "colls/");
    assert.equal(resource._users, "users/");
    assert.equal((await client.database(id).delete()).statusCode, 204);
    await fails(client.database(id).read(), 404);
    await fails(client.database(id).delete(), 404);
  });

  it("are created if they do not exist", async () => {
    const id = unique("db");
    const first = await client.databases.createIfNotExists({ id });
    assert.equal(first.statusCode, 201);
    const second = await client.databases.createIfNotExists({ id });
    assert.equal(second.statusCode, 200);
    assert.equal(second.resource._rid, first.resource._rid);
    await client.database(id).delete();
  });

  it("conflict on the same name", async () => {
    const { database } = await client.databases.create({ id: unique("db") });
    await fails(client.databases.create({ id: database.id }), 409, { message: "already exists" });
    await database.delete();
  });

  it("are listed, in pages", async () => {
    const made = [];
    for (let number = 0; number < 5; number++) {
      made.push((await client.databases.create({ id: unique("db") })).database);
    }
    const { resources } = await client.databases.readAll().fetchAll();
    const iterator = client.databases.readAll({ maxItemCount: 2 });
    const paged = [];
    while (iterator.hasMoreResults()) {
      const { resources: page } = await iterator.fetchNext();
      assert.ok((page ?? []).length <= 2);
      paged.push(...(page ?? []));
    }
    for (const { id } of made) {
      assert.ok(resources.some((one) => one.id === id));
      assert.ok(paged.some((one) => one.id === id));
    }
    assert.equal(new Set(paged.map((one) => one.id)).size, paged.length);
    for (const database of made) await database.delete();
  });

  for (const name of ["with space", "dots.and-dashes_", "percent%25", "plus+sign", "日本語", "quote'"]) {
    it(`may be called "${name}"`, async () => {
      const id = `${name} ${unique()}`;
      const { database } = await client.databases.create({ id });
      assert.equal((await database.read()).resource.id, id);
      await database.delete();
    });
  }

  it("have names of at most 255 characters", async () => {
    await fails(client.databases.create({ id: "n".repeat(256) }), 400);
  });
});
