import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { CosmosClient } from "@azure/cosmos";

import { startOrrery } from "./orrery-container.mjs";

let server;
let orders;

before(async () => {
  server = await startOrrery("shop/orders:/customer");
  const client = new CosmosClient({ endpoint: server.endpoint, key: server.key });
  orders = client.database("shop").container("orders");
});

after(() => server?.stop());

test("an order is found again", async () => {
  await orders.items.create({ id: "1", customer: "ann", total: 12 });
  const { resource } = await orders.item("1", "ann").read();
  assert.equal(resource.total, 12);
  const { resources } = await orders.items.query("SELECT VALUE c.total FROM c").fetchAll();
  assert.deepEqual(resources, [12]);
});
