"use strict";
const assert = require("node:assert/strict");
const https = require("node:https");
const { describe, it, before } = require("node:test");
const { CosmosClient } = require("@azure/cosmos");
const { KEY, endpoint, unique, openClient, fails } = require("../support/suite");

const tlsEndpoint = endpoint.replace("http://", "https://");

async function use(client) {
  const { database, statusCode } = await client.databases.create({ id: unique("conn") });
  assert.equal(statusCode, 201);
  assert.equal((await database.read()).resource.id, database.id);
  assert.equal((await database.delete()).statusCode, 204);
}

describe("connection", () => {
  let certificate;

  before(async () => {
    const answer = await fetch(`${endpoint}_explorer/emulator.pem`);
    assert.equal(answer.status, 200);
    certificate = await answer.text();
    assert.match(certificate, /BEGIN CERTIFICATE/);
    assert.doesNotMatch(certificate, /PRIVATE KEY/);
  });

  it("works over plain HTTP", () => use(openClient()));

  for (const host of ["127.0.0.1", "localhost"]) {
    it(`works over TLS with the certificate trusted, as ${host}`, async () => {
      const agent = new https.Agent({ ca: certificate, keepAlive: true });
      await use(openClient({ endpoint: tlsEndpoint.replace("127.0.0.1", host), agent }));
      agent.destroy();
    });
  }

  it("works over TLS without verification", async () => {
    const agent = new https.Agent({ rejectUnauthorized: false, keepAlive: true });
    await use(openClient({ endpoint: tlsEndpoint, agent }));
    agent.destroy();
  });

  it("is refused by a client that does not trust the certificate", async () => {
    const agent = new https.Agent({ ca: [], keepAlive: true });
    const client = openClient({
      endpoint: tlsEndpoint,
      agent,
      connectionPolicy: { retryOptions: { maxRetryAttemptCount: 0 }, enableEndpointDiscovery: false },
    });
    await assert.rejects(client.databases.create({ id: unique("never") }));
    agent.destroy();
  });

  it("accepts a connection string", async () => {
    const client = new CosmosClient(`AccountEndpoint=${endpoint};AccountKey=${KEY};`);
    await use(client);
    client.dispose();
  });

  it("describes the account", async () => {
    const { resource, headers } = await openClient().getDatabaseAccount();
    assert.equal(resource.consistencyPolicy, "Session");
    assert.equal(resource.writableLocations[0].databaseAccountEndpoint, endpoint);
    assert.equal(resource.readableLocations[0].databaseAccountEndpoint, endpoint);
    assert.equal(resource.enableMultipleWritableLocations, false);
    assert.ok(headers["x-ms-activity-id"]);
  });

  it("refuses a wrong key", async () => {
    const key = Buffer.alloc(64, "x").toString("base64");
    await assert.rejects(openClient({ key }).databases.create({ id: unique("never") }), (error) => {
      assert.equal(error.code, 401);
      assert.match(error.body.message, /authorization token can't serve the request/);
      return true;
    });
  });

  for (const consistencyLevel of ["Session", "ConsistentPrefix", "Eventual"]) {
    it(`accepts the consistency level ${consistencyLevel}`, () => use(openClient({ consistencyLevel })));
  }

  it("refuses a consistency level above the account's", async () => {
    const plain = openClient();
    const { database } = await plain.databases.create({ id: unique("strong") });
    const { container } = await database.containers.create({ id: "c", partitionKey: { paths: ["/pk"] } });
    await container.items.create({ id: "a", pk: "x" });
    const strong = openClient({ consistencyLevel: "Strong" });
    await fails(strong.database(database.id).container("c").item("a", "x").read(), 400);
    await database.delete();
  });
});
