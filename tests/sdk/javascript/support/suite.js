"use strict";
/** What the test files share: clients, fresh databases and containers, checks. */

const assert = require("node:assert/strict");
const { randomUUID } = require("node:crypto");
const { after } = require("node:test");
const { CosmosClient } = require("@azure/cosmos");

// The key every emulator accepts; the server takes it on loopback only.
const KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==";
const endpoint = process.env.ORRERY_ENDPOINT;

const unique = (prefix = "it") => `${prefix}-${randomUUID()}`;

// Everything is tidied up after the last test of the file, not where it was made: a hook set inside
// another hook would run at once.
const opened = [];
const databases = [];

function openClient(options = {}) {
  const credentials = options.resourceTokens || options.permissionFeed ? {} : { key: KEY };
  const client = new CosmosClient({ endpoint, ...credentials, ...options });
  opened.push(client);
  return client;
}

after(async () => {
  for (const database of databases) await database.delete().catch(() => {});
  for (const client of opened) client.dispose();
});

/** A client and a database that is deleted after the file's tests. */
async function openDatabase(options = {}) {
  const client = openClient(options);
  const { database } = await client.databases.create({ id: unique("db") });
  databases.push(database);
  return { client, database };
}

async function newContainer(database, definition = {}, options = {}) {
  const { container } = await database.containers.create(
    { id: unique("c"), partitionKey: { paths: ["/pk"] }, ...definition },
    options,
  );
  return container;
}

/** The promise is refused with this status, and the error carries what every error carries. */
async function fails(promise, code, { substatus, message } = {}) {
  let error;
  try {
    await promise;
  } catch (caught) {
    error = caught;
  }
  assert.ok(error, `expected failure ${code}`);
  assert.equal(error.code, code, `${error.code} ${error.message}`);
  if (substatus !== undefined) assert.equal(error.substatus ?? 0, substatus);
  if (message) assert.ok(JSON.stringify(error.body ?? error.message).includes(message), JSON.stringify(error.body));
  assert.ok(error.headers?.["x-ms-activity-id"], "an error names its activity");
  assert.ok(Number(error.headers["x-ms-request-charge"]) >= 0, "an error states its charge");
  return error;
}

function withoutSystemProperties({ _rid, _self, _etag, _attachments, _ts, ...rest }) {
  return rest;
}

module.exports = { KEY, endpoint, unique, openClient, openDatabase, newContainer, fails, withoutSystemProperties };
