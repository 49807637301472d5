"use strict";
const assert = require("node:assert/strict");
const { describe, it, before } = require("node:test");
const { unique, openDatabase, newContainer } = require("../support/suite");

describe("batch", () => {
  let container, pk;
  before(async () => (container = await newContainer((await openDatabase()).database)));
  const create = (id, rest = {}) => ({ operationType: "Create", resourceBody: { id, pk, ...rest } });

  it("runs every operation", async () => {
    pk = unique();
    for (const id of ["replace", "read", "delete", "patch"]) await container.items.create({ id, pk, value: 1 });
    const { result, code } = await container.items.batch(
      [
        create("create"),
        { operationType: "Upsert", resourceBody: { id: "upsert", pk } },
        { operationType: "Replace", id: "replace", resourceBody: { id: "replace", pk, value: 2 } },
        { operationType: "Read", id: "read" },
        { operationType: "Delete", id: "delete" },
        {
          operationType: "Patch",
          id: "patch",
          resourceBody: { operations: [{ op: "incr", path: "/value", value: 4 }] },
        },
      ],
      pk,
    );
    assert.equal(code, 200);
    assert.deepEqual(result.map((one) => one.statusCode), [201, 201, 200, 200, 204, 200]);
    assert.equal(result[3].resourceBody.value, 1);
    assert.equal(result[5].resourceBody.value, 5);
    for (const one of result) assert.ok(one.requestCharge > 0);
    assert.equal(result[0].eTag, result[0].resourceBody._etag);
  });

  it("is all or nothing", async () => {
    pk = unique();
    await container.items.create({ id: "there", pk });
    const { result, code } = await container.items.batch([create("before"), create("there"), create("after")], pk);
    assert.equal(code, 207);
    assert.deepEqual(result.map((one) => one.statusCode), [424, 409, 424]);
    assert.equal((await container.item("before", pk).read()).statusCode, 404);
    assert.equal((await container.item("after", pk).read()).statusCode, 404);
  });

  it("checks etags and conditions", async () => {
    pk = unique();
    const { resource } = await container.items.create({ id: "a", pk, number: 1 });
    const stale = { operationType: "Replace", id: "a", ifMatch: '"stale"', resourceBody: { id: "a", pk, number: 2 } };
    assert.deepEqual((await container.items.batch([stale], pk)).result.map((one) => one.statusCode), [412]);
    const fresh = { ...stale, ifMatch: resource._etag };
    assert.deepEqual((await container.items.batch([fresh], pk)).result.map((one) => one.statusCode), [200]);
    const patch = {
      operationType: "Patch",
      id: "a",
      resourceBody: { condition: "from c where c.number = 1", operations: [{ op: "set", path: "/v", value: 1 }] },
    };
    assert.deepEqual((await container.items.batch([patch], pk)).result.map((one) => one.statusCode), [412]);
  });

  it("takes a hundred operations, of which the client lets no more through", async () => {
    pk = unique();
    const operations = Array.from({ length: 101 }, (_, number) => create(`${number}`));
    await assert.rejects(container.items.batch(operations, pk), /more than 100 operations/);
    const { result } = await container.items.batch(operations.slice(0, 100), pk);
    assert.ok(result.every((one) => one.statusCode === 201));
  });

  it("refuses none at all", async () => {
    await assert.rejects(container.items.batch([], unique()), /Batch request has no operations\./);
  });

  it("refuses more than 2 MB", async () => {
    pk = unique();
    const filler = "f".repeat(800_000);
    const operations = ["1", "2", "3"].map((id) => create(id, { filler }));
    await assert.rejects(container.items.batch(operations, pk), /Request size is too large/);
  });

  it("returns no bodies when none are wanted", async () => {
    pk = unique();
    const options = { contentResponseOnWriteEnabled: false };
    const { result } = await container.items.batch([create("a"), create("b")], pk, options);
    assert.deepEqual(result.map((one) => one.statusCode), [201, 201]);
    for (const one of result) {
      assert.equal(one.resourceBody, undefined);
      assert.ok(one.eTag);
    }
  });
});
