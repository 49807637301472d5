"use strict";
const assert = require("node:assert/strict");
const { describe, it, before } = require("node:test");
const { unique, openDatabase, openClient, newContainer, fails } = require("../support/suite");

describe("throughput", () => {
  let client, database;
  before(async () => ({ client, database } = await openDatabase()));

  it("is 400 by default", async () => {
    const container = await newContainer(database);
    const { resource } = await container.readOffer();
    assert.equal(resource.content.offerThroughput, 400);
  });

  it("is read and replaced", async () => {
    const container = await newContainer(database, { throughput: 600 });
    const { resource, offer } = await container.readOffer();
    const { resource: properties } = await container.read();
    assert.equal(resource.content.offerThroughput, 600);
    assert.equal(resource.resource, properties._self);
    assert.equal(resource.offerResourceId, properties._rid);
    assert.equal(resource.offerVersion, "V2");
    resource.content.offerThroughput = 900;
    const replaced = await offer.replace(resource);
    assert.equal(replaced.statusCode, 200);
    assert.equal(replaced.resource.content.offerThroughput, 900);
    assert.equal((await offer.read()).resource.content.offerThroughput, 900);
    assert.ok(Number(replaced.headers["x-ms-cosmos-min-throughput"]) >= 400);
  });

  for (const throughput of [100, 450, -100]) {
    it(`refuses ${throughput}`, async () => {
      const container = await newContainer(database, { throughput: 600 });
      const { resource, offer } = await container.readOffer();
      resource.content.offerThroughput = throughput;
      await fails(offer.replace(resource), 400);
    });
  }

  it("may be automatic", async () => {
    const container = await newContainer(database, { maxThroughput: 4000 });
    const { resource, offer } = await container.readOffer();
    assert.equal(resource.content.offerAutopilotSettings.maxThroughput, 4000);
    resource.content.offerAutopilotSettings.maxThroughput = 5000;
    const replaced = await offer.replace(resource);
    assert.equal(replaced.resource.content.offerAutopilotSettings.maxThroughput, 5000);
  });

  it("cannot be both manual and automatic", async () => {
    await assert.rejects(newContainer(database, { throughput: 400, maxThroughput: 4000 }));
  });

  it("belongs to the database when it has any", async () => {
    const { database: shared } = await client.databases.create({ id: unique("ru"), throughput: 500 });
    assert.equal((await shared.readOffer()).resource.content.offerThroughput, 500);
    const sharing = await newContainer(shared);
    assert.equal((await sharing.readOffer()).resource, undefined);
    const own = await newContainer(shared, { throughput: 700 });
    assert.equal((await own.readOffer()).resource.content.offerThroughput, 700);
    await shared.delete();
  });

  it("is absent on a database without any", async () => {
    assert.equal((await database.readOffer()).resource, undefined);
  });

  it("is listed", async () => {
    const container = await newContainer(database, { throughput: 1100 });
    const { resource } = await container.read();
    const { resources } = await openClient().offers.readAll().fetchAll();
    const own = resources.filter((offer) => offer.resource === resource._self);
    assert.deepEqual(own.map((offer) => offer.content.offerThroughput), [1100]);
  });

  it("goes with its container", async () => {
    const container = await newContainer(database, { throughput: 1100 });
    const { offer } = await container.readOffer();
    await container.delete();
    await fails(offer.read(), 404);
  });
});
