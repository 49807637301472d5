"use strict";
/** Requests beyond the provisioned throughput: each operation of a bulk request waits for itself, and clients retry. */

const assert = require("node:assert/strict");
const { describe, it, before, after } = require("node:test");
const { CosmosClient } = require("@azure/cosmos");
const server = require("../support/server");

const KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
/** An item of this size costs more than a thousand units: it takes the budget of the next seconds too. */
const HUGE = "x".repeat(1_900_000);

describe("throttling", () => {
  let running;
  const clients = [];
  let containers;

  before(async () => {
    running = await server.start(["--in-memory", "--no-throttle=false"]);
    const retryOptions = { maxRetryAttemptCount: 0, fixedRetryIntervalInMilliseconds: 0, maxWaitTimeInSeconds: 0 };
    const impatient = new CosmosClient({ endpoint: running.endpoint, key: KEY, connectionPolicy: { retryOptions } });
    const patient = new CosmosClient({ endpoint: running.endpoint, key: KEY });
    clients.push(impatient, patient);
    const { database } = await patient.databases.create({ id: "db" });
    await database.containers.create({ id: "c", partitionKey: { paths: ["/pk"], version: 2 }, throughput: 400 });
    containers = [impatient, patient].map((client) => client.database("db").container("c"));
  });

  after(async () => {
    for (const client of clients) client.dispose();
    await running?.stop();
  });

  const operations = (count) =>
    Array.from({ length: count }, (_, number) => ({
      operationType: "Upsert",
      partitionKey: "a",
      resourceBody: { id: `${number}`, pk: "a" },
    }));

  it("refuses single operations with the time to wait", async () => {
    const [impatient] = containers;
    await impatient.items.upsert({ id: "huge", pk: "a", x: HUGE });
    await assert.rejects(impatient.items.upsert({ id: "small", pk: "a" }), (error) => {
      assert.equal(error.code, 429);
      assert.equal(Number(error.substatus ?? error.headers["x-ms-substatus"]), 3200);
      assert.ok(Number(error.headers["x-ms-retry-after-ms"]) > 0);
      return true;
    });
  });

  it("refuses operations of a bulk request for themselves", async () => {
    const [impatient, patient] = containers;
    await patient.items.upsert({ id: "huge", pk: "a", x: HUGE });
    const answers = await impatient.items.bulk(operations(5), { continueOnError: true });
    assert.equal(answers.length, 5);
    for (const answer of answers) assert.equal(answer.statusCode, 429);
  });

  it("is absorbed by clients that try again", async () => {
    const [, patient] = containers;
    await patient.items.upsert({ id: "huge", pk: "a", x: HUGE.slice(0, 1_000_000) });
    // This client waits for one operation after the other, so a few must do.
    const answers = await patient.items.executeBulkOperations(operations(4));
    for (const { response, error } of answers) {
      assert.equal(error, undefined);
      assert.ok([200, 201].includes(response.statusCode));
    }
  });
});
