"use strict";
const assert = require("node:assert/strict");
const { describe, it, before } = require("node:test");
const { unique, openDatabase, newContainer } = require("../support/suite");

describe("scripts", () => {
  let container;
  before(async () => (container = await newContainer((await openDatabase()).database)));

  it("have a life cycle", async () => {
    const { storedProcedures, triggers, userDefinedFunctions } = container.scripts;
    const kinds = [
      [storedProcedures, (id) => container.scripts.storedProcedure(id), {}],
      [triggers, (id) => container.scripts.trigger(id), { triggerType: "Pre", triggerOperation: "All" }],
      [userDefinedFunctions, (id) => container.scripts.userDefinedFunction(id), {}],
    ];
    for (const [feed, one, terms] of kinds) {
      const id = unique();
      const { resource } = await feed.create({ id, body: "function () { var x = 10; }", ...terms });
      assert.equal(resource.body, "function () { var x = 10; }");
      await assert.rejects(feed.create({ id, body: "function () {}", ...terms }), { code: 409 });
      assert.ok((await feed.readAll().fetchAll()).resources.some((each) => each.id === id));
      const { resource: replaced } = await one(id).replace({ ...resource, body: "() => 20" });
      assert.equal(replaced.body, "() => 20");
      assert.notEqual(replaced._etag, resource._etag);
      const query = { query: "SELECT * FROM root r WHERE r.id = @id", parameters: [{ name: "@id", value: id }] };
      assert.equal((await feed.query(query).fetchAll()).resources.length, 1);
      await one(id).delete();
      await assert.rejects(one(id).read(), { code: 404 });
    }
  });

  it("run as procedures, all or nothing", async () => {
    const body = function (id, pk, fails) {
      const collection = getContext().getCollection(); // eslint-disable-line no-undef
      const accepted = collection.createDocument(collection.getSelfLink(), { id, pk }, (error, made) => {
        if (error) throw error;
        if (fails) throw new Error("on purpose");
        getContext().getResponse().setBody(made.id); // eslint-disable-line no-undef
      });
      if (!accepted) throw new Error("not accepted");
    };
    const { resource } = await container.scripts.storedProcedures.create({ id: unique(), body });
    const pk = unique();
    const run = container.scripts.storedProcedure(resource.id);
    await assert.rejects(run.execute(pk, ["undone", pk, true]), { code: 400 });
    assert.equal((await container.item("undone", pk).read()).statusCode, 404);
    assert.equal((await run.execute(pk, ["done", pk, false])).resource, "done");
    assert.equal((await container.item("done", pk).read()).statusCode, 200);
  });

  it("run as triggers", async () => {
    const body = function () {
      const item = getContext().getRequest().getBody(); // eslint-disable-line no-undef
      item.id = item.id.toUpperCase();
      getContext().getRequest().setBody(item); // eslint-disable-line no-undef
    };
    await container.scripts.triggers.create({ id: "upper", body, triggerType: "Pre", triggerOperation: "Create" });
    const pk = unique();
    const { resource } = await container.items.create({ id: "doc", pk }, { preTriggerInclude: "upper" });
    assert.equal(resource.id, "DOC");
    await assert.rejects(container.items.upsert({ id: "doc", pk }, { preTriggerInclude: "upper" }), { code: 400 });
  });

  it("run as functions in queries over all partitions", async () => {
    const body = "function (text, pattern) { return text.match(pattern) !== null; }";
    await container.scripts.userDefinedFunctions.create({ id: "REGEX_MATCH", body });
    const word = unique();
    for (const pk of ["a", "b", "c"]) await container.items.create({ id: unique(), pk, word: `${word}-${pk}` });
    const query = `SELECT VALUE c.pk FROM c WHERE udf.REGEX_MATCH(c.word, "^${word}-[ab]$")`;
    assert.deepEqual((await container.items.query(query).fetchAll()).resources.sort(), ["a", "b"]);
  });
});
