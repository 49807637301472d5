// Orders of customers. Start it with `npm install && npm start`.

import { createServer } from "node:http";
import { CosmosClient } from "@azure/cosmos";

// One client for the whole process: it keeps connections and the partition map.
const client = new CosmosClient({ endpoint: process.env.COSMOS_ENDPOINT, key: process.env.COSMOS_KEY });
const { database } = await client.databases.createIfNotExists({ id: "shop" });
const { container: orders } = await database.containers.createIfNotExists({ id: "orders", partitionKey: "/customer" });

async function create({ body }) {
  const item = { ...body, status: "open", at: new Date().toISOString() };
  const { resource } = await orders.items.create(item);
  return [201, resource];
}

async function read({ customer, id }) {
  // Id and partition key: a point read, the cheapest request.
  const { resource } = await orders.item(id, customer).read();
  return resource ? [200, resource] : [404, { error: "no such order" }];
}

async function latest({ customer }) {
  const query = {
    query: "SELECT * FROM c WHERE c.customer = @customer ORDER BY c.at DESC OFFSET 0 LIMIT 20",
    parameters: [{ name: "@customer", value: customer }],
  };
  const { resources } = await orders.items.query(query, { partitionKey: customer }).fetchAll();
  return [200, resources];
}

async function ship(request) {
  const [status, order] = await read(request);
  if (status !== 200) return [status, order];
  // The etag makes sure that nobody has changed the order since it was read.
  const { resource } = await orders.item(order.id, order.customer).replace(
    { ...order, status: "shipped" },
    { accessCondition: { type: "IfMatch", condition: order._etag } },
  );
  return [200, resource];
}

const routes = [
  ["GET", /^\/health$/, async () => [200, { status: "up" }]],
  ["POST", /^\/orders$/, create],
  ["GET", /^\/customers\/(?<customer>[^/]+)\/orders\/(?<id>[^/]+)$/, read],
  ["GET", /^\/customers\/(?<customer>[^/]+)\/orders$/, latest],
  ["POST", /^\/customers\/(?<customer>[^/]+)\/orders\/(?<id>[^/]+)\/ship$/, ship],
];

async function answer(request) {
  for (const [method, pattern, handle] of routes) {
    const match = request.method === method && pattern.exec(new URL(request.url, "http://localhost").pathname);
    if (!match) continue;
    const names = Object.entries(match.groups ?? {}).map(([name, value]) => [name, decodeURIComponent(value)]);
    const text = [];
    for await (const part of request) text.push(part);
    const body = text.length ? JSON.parse(Buffer.concat(text).toString()) : undefined;
    return handle({ ...Object.fromEntries(names), body });
  }
  return [404, { error: "no such page" }];
}

const server = createServer(async (request, response) => {
  let status, body;
  try {
    [status, body] = await answer(request);
  } catch (error) {
    // 409 for an id that exists, 412 for a stale etag: the status is the service's.
    [status, body] = [typeof error.code === "number" ? error.code : 500, { error: error.message }];
  }
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
});
server.listen(Number(process.env.PORT ?? 8000), "127.0.0.1");
