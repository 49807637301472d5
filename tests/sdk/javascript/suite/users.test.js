"use strict";
const assert = require("node:assert/strict");
const { describe, it, before } = require("node:test");
const { PermissionMode } = require("@azure/cosmos");
const { unique, openDatabase, openClient, newContainer, fails } = require("../support/suite");

describe("users", () => {
  let database, container;
  before(async () => {
    ({ database } = await openDatabase());
    container = await newContainer(database, { partitionKey: { paths: ["/pk"], version: 2 } });
    await container.items.create({ id: "a", pk: "x", value: 1 });
    await container.items.create({ id: "b", pk: "y", value: 2 });
  });

  const newUser = async () => (await database.users.create({ id: unique("user") })).user;
  const grant = async (user, rest = {}) =>
    (
      await user.permissions.create({ id: unique("p"), permissionMode: PermissionMode.Read, resource: container.url, ...rest })
    ).resource;
  const seenWith = (options) => openClient(options).database(database.id).container(container.id);

  it("live and die", async () => {
    const id = unique("user");
    const { user, resource, statusCode } = await database.users.create({ id });
    assert.equal(statusCode, 201);
    assert.equal((await user.read()).resource._permissions, "permissions/");
    await fails(database.users.create({ id }), 409);
    assert.ok((await database.users.readAll().fetchAll()).resources.some((one) => one.id === id));
    const renamed = await user.replace({ id: `${id}-renamed` });
    assert.equal(renamed.resource._rid, resource._rid);
    assert.equal((await database.users.upsert({ id })).statusCode, 201);
    assert.equal((await database.users.upsert({ id })).statusCode, 200);
    assert.equal((await database.user(id).delete()).statusCode, 204);
    await fails(database.user(id).read(), 404);
  });

  it("have permissions", async () => {
    const user = await newUser();
    const definition = { id: "p", permissionMode: PermissionMode.Read, resource: container.url };
    const { permission, resource } = await user.permissions.create(definition);
    assert.match(resource._token, /^type=resource&ver=1/);
    assert.equal(resource.permissionMode, PermissionMode.Read);
    await fails(user.permissions.create(definition), 409);
    assert.equal((await permission.read()).resource.id, "p");
    assert.equal((await user.permissions.readAll().fetchAll()).resources.length, 1);
    const replaced = await permission.replace({ ...definition, permissionMode: PermissionMode.All });
    assert.equal(replaced.resource.permissionMode, PermissionMode.All);
    assert.equal((await user.permissions.upsert(definition)).resource.permissionMode, PermissionMode.Read);
    await permission.delete();
    await fails(permission.read(), 404);
  });

  it("read with a read token, and write nothing", async () => {
    const permission = await grant(await newUser());
    const seen = seenWith({ resourceTokens: { [container.url]: permission._token } });
    assert.equal((await seen.item("a", "x").read()).resource.value, 1);
    await fails(seen.items.create({ id: unique(), pk: "x" }), 403);
    await fails(seen.item("a", "x").delete(), 403);
  });

  it("write with a full token", async () => {
    const permission = await grant(await newUser(), { permissionMode: PermissionMode.All });
    const seen = seenWith({ permissionFeed: [permission] });
    const { item } = await seen.items.create({ id: unique(), pk: "x" });
    await item.delete();
  });

  it("see one partition key only when the permission says so", async () => {
    const permission = await grant(await newUser(), { resourcePartitionKey: ["x"] });
    const seen = seenWith({ resourceTokens: { [container.url]: permission._token } });
    assert.equal((await seen.item("a", "x").read()).resource.value, 1);
    await fails(seen.item("b", "y").read(), 403);
  });

  it("see no other container", async () => {
    const other = await newContainer(database);
    const permission = await grant(await newUser());
    const client = openClient({ resourceTokens: { [other.url]: permission._token } });
    await assert.rejects(client.database(database.id).container(other.id).read(), ({ code }) => [401, 403].includes(code));
  });
});
