"use strict";
const assert = require("node:assert/strict");
const { describe, it, before } = require("node:test");
const { unique, openDatabase, newContainer, fails, withoutSystemProperties } = require("../support/suite");

const START = { text: "a", number: 5, list: [1, 2, 3], inner: { x: 1 } };

const SUCCESSES = {
  add: [[{ op: "add", path: "/new", value: 1 }], { ...START, new: 1 }],
  "add into an array": [[{ op: "add", path: "/list/0", value: 0 }], { ...START, list: [0, 1, 2, 3] }],
  "add at the end": [[{ op: "add", path: "/list/-", value: 4 }], { ...START, list: [1, 2, 3, 4] }],
  set: [[{ op: "set", path: "/inner/x", value: null }], { ...START, inner: { x: null } }],
  "set an element": [[{ op: "set", path: "/list/0", value: 0 }], { ...START, list: [0, 2, 3] }],
  replace: [[{ op: "replace", path: "/text", value: "b" }], { ...START, text: "b" }],
  remove: [[{ op: "remove", path: "/list" }], { text: "a", number: 5, inner: { x: 1 } }],
  incr: [[{ op: "incr", path: "/number", value: 2.5 }], { ...START, number: 7.5 }],
  "incr of a new property": [[{ op: "incr", path: "/count", value: 1 }], { ...START, count: 1 }],
  move: [[{ op: "move", from: "/text", path: "/inner/text" }], { number: 5, list: [1, 2, 3], inner: { x: 1, text: "a" } }],
  several: [
    [
      { op: "add", path: "/box", value: {} },
      { op: "add", path: "/box/a", value: 1 },
      { op: "incr", path: "/box/a", value: 1 },
    ],
    { ...START, box: { a: 2 } },
  ],
};

const REFUSALS = {
  "replace of a missing property": [{ op: "replace", path: "/missing", value: 1 }],
  "remove of a missing property": [{ op: "remove", path: "/missing" }],
  "add below a missing parent": [{ op: "add", path: "/no/such", value: 1 }],
  "add beyond the end": [{ op: "add", path: "/list/9", value: 1 }],
  "incr of text": [{ op: "incr", path: "/text", value: 1 }],
  "the id": [{ op: "set", path: "/id", value: "b" }],
  "the partition key": [{ op: "set", path: "/pk", value: "b" }],
  "eleven operations": Array.from({ length: 11 }, () => ({ op: "incr", path: "/number", value: 1 })),
};

describe("patch", () => {
  let container, item, id;
  before(async () => (container = await newContainer((await openDatabase()).database)));

  async function fresh() {
    id = unique();
    ({ item } = await container.items.create({ id, pk: "p", ...START }));
  }

  for (const [name, [operations, expected]] of Object.entries(SUCCESSES)) {
    it(name, async () => {
      await fresh();
      const patched = await item.patch(operations);
      assert.equal(patched.statusCode, 200);
      assert.deepEqual(withoutSystemProperties(patched.resource), { id, pk: "p", ...expected });
      assert.deepEqual((await item.read()).resource, patched.resource);
    });
  }

  for (const [name, operations] of Object.entries(REFUSALS)) {
    it(`refuses ${name}`, async () => {
      await fresh();
      await fails(item.patch(operations), 400);
      assert.equal((await item.read()).resource.number, 5);
    });
  }

  it("obeys its condition", async () => {
    await fresh();
    const operations = [{ op: "incr", path: "/number", value: 1 }];
    const condition = "from c where c.number = 5";
    assert.equal((await item.patch({ operations, condition })).resource.number, 6);
    await fails(item.patch({ operations, condition }), 412);
    await fails(item.patch({ operations, condition: "from c where" }), 400);
  });

  it("names the failing operation", async () => {
    await fresh();
    await fails(item.patch([{ op: "add", path: "/no/such", value: 1 }]), 400, { message: "For Operation(1)" });
  });
});
