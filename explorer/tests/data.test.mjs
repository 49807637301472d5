// Databases, containers, items and queries in Chromium: what is created, scaled, changed, taken out and deleted.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { ORDERS, findNoViolation, inTab, makeContainer, orders, request, shot, startBrowser, startServer, stopBrowser, writeItems } from './support.mjs';

before(startBrowser);
after(stopBrowser);

/** The offer of a database or container, as the server has it. */
async function offerOf(server, rid) {
  const { Offers } = (await request(server, 'GET', '/offers')).body;
  return Offers.find((offer) => offer.offerResourceId === rid)?.content ?? null;
}

/** All rows of a query, asked again where the second's throughput is used up. */
async function rowsOf(server, path, query) {
  const headers = { 'content-type': 'application/query+json', 'x-ms-documentdb-isquery': 'true', 'x-ms-documentdb-query-enablecrosspartition': 'true', 'x-ms-max-item-count': '1000' };
  for (;;) {
    const answer = await request(server, 'POST', `${path}/docs`, { query }, headers);
    if (answer.status !== 429) return answer.body.Documents;
  }
}

/** What the browser saves when the work is done. */
async function savedBy(page, work) {
  const [download] = await Promise.all([page.waitForEvent('download'), work()]);
  return { name: download.suggestedFilename(), text: readFileSync(await download.path(), 'utf8') };
}

describe('databases and containers', () => {
  let server;
  before(async () => (server = await startServer()));
  after(() => server.stop());

  test('throughput is manual, autoscale or shared, and switched', async () => {
    await inTab({}, async (page) => {
      await page.goto(server.page);
      await page.getByRole('button', { name: 'New database', exact: true }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByLabel('Name').fill('scaled');
      await dialog.getByText('Autoscale', { exact: true }).click();
      await dialog.getByLabel('Most request units per second').fill('5000');
      await dialog.getByRole('button', { name: 'Create database' }).click();
      await page.getByText('No containers yet.').waitFor();
      const database = (await request(server, 'GET', '/dbs/scaled')).body;
      assert.equal((await offerOf(server, database._rid)).offerAutopilotSettings.maxThroughput, 5000);

      // A container without throughput of its own, and one with it.
      for (const [name, own] of [['shares', false], ['owns', true]]) {
        await page.goto(`${server.page}#/db/scaled`);
        await page.getByRole('button', { name: 'New container' }).click();
        await dialog.getByLabel('Container name').fill(name);
        await dialog.getByLabel('Partition key').fill('/k');
        if (!own) await dialog.getByText('Database’s', { exact: true }).click();
        await dialog.getByRole('button', { name: 'Create container' }).click();
        await page.getByText('No items yet.').waitFor();
      }
      const [shares, owns] = await Promise.all(['shares', 'owns'].map(async (name) => (await request(server, 'GET', `/dbs/scaled/colls/${name}`)).body));
      assert.equal(await offerOf(server, shares._rid), null);
      assert.equal((await offerOf(server, owns._rid)).offerThroughput, 400);
      await page.goto(`${server.page}#/db/scaled`);
      await page.getByRole('row', { name: /shares.*shared/ }).waitFor();
      await page.getByRole('row', { name: /owns.*400 RU\/s/ }).waitFor();
      await findNoViolation(page, 'database');

      // The database goes from autoscale to manual.
      const scale = page.locator('section', { has: page.getByRole('heading', { name: 'Scale' }) });
      await scale.getByText('Manual', { exact: true }).click();
      await scale.getByLabel('Request units per second').fill('900');
      await scale.getByRole('button', { name: 'Save' }).click();
      await page.getByText('The throughput was changed.').waitFor();
      const manual = await offerOf(server, database._rid);
      assert.equal(manual.offerThroughput, 900);
      assert.equal(manual.offerAutopilotSettings, undefined);

      // A container goes from manual to autoscale and back; the head of the page follows.
      await page.goto(`${server.page}#/db/scaled/owns/settings`);
      await scale.getByText('Autoscale', { exact: true }).click();
      await scale.getByLabel('Most request units per second').fill('4000');
      await scale.getByRole('button', { name: 'Save' }).click();
      await page.getByRole('listitem').getByText('up to 4,000 RU/s').waitFor();
      assert.equal((await offerOf(server, owns._rid)).offerAutopilotSettings.maxThroughput, 4000);
      await scale.getByText('Manual', { exact: true }).click();
      await scale.getByLabel('Request units per second').fill('600');
      await scale.getByRole('button', { name: 'Save' }).click();
      await page.getByRole('listitem').getByText('600 RU/s', { exact: true }).waitFor();
      assert.equal((await offerOf(server, owns._rid)).offerThroughput, 600);

      // One that shares has nothing to set; what the server refuses is said.
      await page.goto(`${server.page}#/db/scaled/shares/settings`);
      await scale.getByText('shares the throughput of its database').waitFor();
      await page.goto(`${server.page}#/db/scaled/owns/settings`);
      await scale.getByLabel('Request units per second').fill('401');
      await scale.getByRole('button', { name: 'Save' }).click();
      await scale.getByRole('alert').waitFor();
      assert.equal((await offerOf(server, owns._rid)).offerThroughput, 600);
    });
  });

  test('a container has its policies from the start; it and its database are deleted by name', async () => {
    await inTab({}, async (page) => {
      await request(server, 'POST', '/dbs', { id: 'short-lived' });
      await page.goto(`${server.page}#/db/short-lived`);
      await page.getByRole('button', { name: 'New container' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByLabel('Container name').fill('vectors');
      await dialog.getByLabel('Partition key').fill('/k');
      await dialog.getByText('More', { exact: true }).click();
      await dialog.getByLabel('Time to live, in seconds').fill('3600');
      await dialog.getByLabel('Unique keys').fill('/email');
      await dialog.getByLabel('Policies as JSON').fill('{"vectorEmbeddingPolicy": {"vectorEmbeddings": [');
      await dialog.getByRole('button', { name: 'Create container' }).click();
      await dialog.getByText('The policies are not valid JSON').waitFor();
      const embedding = { path: '/v', dataType: 'float32', distanceFunction: 'cosine', dimensions: 3 };
      await dialog.getByLabel('Policies as JSON').fill(JSON.stringify({ vectorEmbeddingPolicy: { vectorEmbeddings: [embedding] }, changeFeedPolicy: { retentionDuration: 10 } }));
      await dialog.getByRole('button', { name: 'Create container' }).click();
      await page.getByText('No items yet.').waitFor();
      const made = (await request(server, 'GET', '/dbs/short-lived/colls/vectors')).body;
      assert.deepEqual(made.vectorEmbeddingPolicy.vectorEmbeddings.map((one) => one.path), ['/v']);
      assert.equal(made.changeFeedPolicy.retentionDuration, 10);
      assert.equal(made.defaultTtl, 3600);
      assert.deepEqual(made.uniqueKeyPolicy.uniqueKeys[0].paths, ['/email']);

      await page.goto(`${server.page}#/db/short-lived/vectors/settings`);
      await page.getByRole('button', { name: 'Delete vectors…' }).click();
      const remove = dialog.getByRole('button', { name: 'Delete the container' });
      assert.ok(await remove.isDisabled(), 'the name has to be typed');
      await dialog.getByLabel(/Type “vectors”/).fill('vector');
      assert.ok(await remove.isDisabled());
      await findNoViolation(page, 'confirmation');
      await dialog.getByLabel(/Type “vectors”/).fill('vectors');
      await remove.click();
      await page.getByText('No containers yet.').waitFor();
      assert.equal((await request(server, 'GET', '/dbs/short-lived/colls/vectors')).status, 404);

      await page.getByRole('button', { name: 'Delete short-lived…' }).click();
      await dialog.getByLabel(/Type “short-lived”/).fill('short-lived');
      await dialog.getByRole('button', { name: 'Delete the database' }).click();
      await page.waitForURL(/#\/$/);
      assert.equal((await request(server, 'GET', '/dbs/short-lived')).status, 404);
    });
  });

  test('triggers and functions are written, used and deleted', async () => {
    await makeContainer(server, 'scripted', ORDERS, 1000);
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/db/scripted/orders/scripts`);
      await page.getByRole('button', { name: 'New function' }).click();
      await page.getByLabel('Name of the function').fill('double');
      await page.getByLabel('Code of the function').fill('function double(n) { return 2 * n; }');
      await page.getByRole('button', { name: 'Create', exact: true }).click();
      await page.getByRole('button', { name: 'double', exact: true }).waitFor();
      await page.getByRole('button', { name: 'New trigger' }).click();
      await page.getByLabel('Name of the trigger').fill('stamp');
      await page.getByLabel('Operation').selectOption('Create');
      await page.getByLabel('Code of the trigger').fill('function stamp() { const r = getContext().getRequest(); const item = r.getBody(); item.stamped = true; r.setBody(item); }');
      await page.getByRole('button', { name: 'Create', exact: true }).click();
      await page.getByRole('button', { name: 'stamp', exact: true }).waitFor();
      const made = await request(server, 'POST', '/dbs/scripted/colls/orders/docs', { id: 'one', customer: 'c1', n: 21 }, { 'x-ms-documentdb-partitionkey': '["c1"]', 'x-ms-documentdb-pre-trigger-include': 'stamp' });
      assert.equal(made.body.stamped, true, JSON.stringify(made.body));
      assert.deepEqual(await rowsOf(server, '/dbs/scripted/colls/orders', 'SELECT VALUE udf.double(c.n) FROM c'), [42]);
      await page.getByRole('button', { name: 'Delete stamp' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Delete', exact: true }).click();
      await page.getByRole('button', { name: 'stamp', exact: true }).waitFor({ state: 'detached' });
      assert.deepEqual((await request(server, 'GET', '/dbs/scripted/colls/orders/triggers')).body.Triggers, []);
    });
  });

  test('every version and delete is seen as it happens', async () => {
    await makeContainer(server, 'versions', { ...ORDERS, changeFeedPolicy: { retentionDuration: 10 } }, 1000);
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/db/versions/orders/changes`);
      // The feed begins with the first answer: what is written before it is not in it.
      const [begun] = await Promise.all([page.waitForResponse((response) => response.request().headers()['a-im'] === 'Full-Fidelity Feed'), page.getByRole('button', { name: 'All versions and deletes' }).click()]);
      assert.equal(begun.status(), 304);
      const key = { 'x-ms-documentdb-partitionkey': '["c1"]' };
      await request(server, 'POST', '/dbs/versions/colls/orders/docs', { id: 'brief', customer: 'c1', n: 1 }, key);
      await request(server, 'PUT', '/dbs/versions/colls/orders/docs/brief', { id: 'brief', customer: 'c1', n: 2 }, key);
      await request(server, 'DELETE', '/dbs/versions/colls/orders/docs/brief', undefined, key);
      const grid = page.getByRole('grid', { name: 'Changes, newest first' });
      for (const operation of ['create', 'replace', 'delete']) await grid.getByRole('row', { name: new RegExp(`${operation} brief \\["c1"\\]`) }).waitFor();
      await page.getByText('3 changes so far').waitFor();
      await findNoViolation(page, 'all versions');
    });
  });
});

describe('items that go', () => {
  let server;
  before(async () => (server = await startServer()));
  after(() => server.stop());

  test('chosen items are deleted, one is duplicated, columns are chosen', async () => {
    await makeContainer(server, 'shop', ORDERS, 10_000);
    await writeItems(server, 'shop', 'orders', orders(20), 'customer');
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/db/shop/orders/items`);
      await page.getByLabel('Choose o000003').check();
      await page.getByLabel('Choose o000005').check();
      await page.getByText('2 chosen').waitFor();
      await page.getByRole('button', { name: 'Delete 2' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByText('o000003, o000005').waitFor();
      await dialog.getByRole('button', { name: 'Delete', exact: true }).click();
      await page.getByRole('gridcell', { name: 'o000003', exact: true }).waitFor({ state: 'detached' });
      const left = await rowsOf(server, '/dbs/shop/colls/orders', 'SELECT VALUE c.id FROM c');
      assert.equal(left.length, 18);
      assert.ok(!left.includes('o000003') && !left.includes('o000005'));

      // By keyboard: the active row, and the Delete key.
      const grid = page.getByRole('grid', { name: 'Items' });
      await grid.focus();
      await page.keyboard.press('Home');
      await page.keyboard.press('Delete');
      await dialog.getByRole('button', { name: 'Cancel' }).click();
      assert.equal((await rowsOf(server, '/dbs/shop/colls/orders', 'SELECT VALUE c.id FROM c')).length, 18);

      await page.getByRole('gridcell', { name: 'o000007', exact: true }).click();
      await page.getByLabel('Item as JSON').getByText('"o000007"').waitFor();
      await page.getByRole('button', { name: 'Duplicate' }).click();
      await page.getByLabel('Item as JSON').getByText('"o000007-copy"').waitFor();
      await page.getByRole('button', { name: 'Create', exact: true }).click();
      await page.getByRole('gridcell', { name: 'o000007-copy', exact: true }).waitFor();
      const copy = await request(server, 'GET', '/dbs/shop/colls/orders/docs/o000007-copy', undefined, { 'x-ms-documentdb-partitionkey': '["c7"]' });
      assert.equal(copy.body.city, orders(20)[7].city);

      await page.getByRole('button', { name: 'Columns' }).click();
      await dialog.getByLabel('city').uncheck();
      await page.keyboard.press('Escape');
      await page.getByRole('columnheader', { name: 'city' }).waitFor({ state: 'detached' });
    });
  });

  test('all items of a key are deleted at once, and the work is seen', async () => {
    await makeContainer(server, 'bulk', ORDERS, 400);
    await writeItems(server, 'bulk', 'orders', orders(400).map((item, at) => ({ ...item, customer: at < 380 ? 'many' : 'few' })), 'customer');
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/db/bulk/orders/items`);
      await page.getByText(/\d+ items/).first().waitFor();
      await page.getByRole('button', { name: 'More item actions' }).click();
      await page.getByRole('button', { name: 'Delete all items of a key…' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByLabel('/customer').fill('many');
      await findNoViolation(page, 'delete by key');
      await dialog.getByRole('button', { name: 'Delete them' }).click();
      await dialog.waitFor({ state: 'detached' });
      // They are gone for readers at once.
      assert.deepEqual(await rowsOf(server, '/dbs/bulk/colls/orders', 'SELECT VALUE COUNT(1) FROM c'), [20]);
      await page.getByRole('gridcell', { name: 'few', exact: true }).first().waitFor();
      assert.equal(await page.getByRole('gridcell', { name: 'many', exact: true }).count(), 0);
      // A tenth of 400 RU/s removes them from the store: that takes a while, and the server's page says so.
      await page.goto(`${server.page}#/server`);
      const work = page.getByRole('region', { name: 'Background work' });
      await work.getByRole('row', { name: /Delete by key bulk\/orders removing the items of 1 key/ }).waitFor();
      await findNoViolation(page, 'background work');
      await shot(page, 'server-background');
      await work.getByRole('link', { name: 'bulk/orders' }).click();
      await page.waitForURL(/bulk\/orders\/items/);
    });
  });

  test('items are downloaded as JSON lines and CSV, and a CSV file comes back', async () => {
    await makeContainer(server, 'files', ORDERS, 20_000);
    const written = orders(1200);
    await writeItems(server, 'files', 'orders', written, 'customer');
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/db/files/orders/items`);
      await page.getByText(/\d+ items/).first().waitFor();
      const open = async () => {
        await page.getByRole('button', { name: 'More item actions' }).click();
        await page.getByRole('button', { name: 'Download…' }).click();
      };
      const dialog = page.getByRole('dialog');
      await open();
      await findNoViolation(page, 'download');
      const lines = await savedBy(page, () => dialog.getByRole('button', { name: 'JSON lines' }).click());
      assert.equal(lines.name, 'orders.jsonl');
      const items = lines.text.trimEnd().split('\n').map((line) => JSON.parse(line));
      const byId = (a, b) => (a.id < b.id ? -1 : 1);
      assert.deepEqual(items.sort(byId), written, 'every item as it was written, without system properties');

      await page.getByLabel('WHERE').fill('c.customer = "c7"');
      await page.getByRole('button', { name: 'Filter', exact: true }).click();
      await page.getByText('24 items').waitFor();
      await open();
      const csv = await savedBy(page, () => dialog.getByRole('button', { name: 'CSV' }).click());
      assert.equal(csv.name, 'orders.csv');
      const rows = csv.text.split('\r\n');
      assert.equal(rows.length, 25);
      assert.equal(rows[0], 'id,customer,city,total');

      await makeContainer(server, 'files', { ...ORDERS, id: 'again' }, 20_000);
      const file = join(mkdtempSync(join(tmpdir(), 'orrery-')), 'again.csv');
      writeFileSync(file, csv.text);
      await page.goto(`${server.page}#/db/files/again/items`);
      await page.getByRole('button', { name: 'Upload a file' }).first().click();
      await page.getByLabel('File', { exact: true }).setInputFiles(file);
      await page.getByRole('button', { name: 'Upload', exact: true }).click();
      await page.getByText('All items are written.').waitFor();
      const found = await rowsOf(server, '/dbs/files/colls/again', 'SELECT c.id, c.customer, c.city, c.total FROM c');
      assert.deepEqual(found.sort(byId), written.filter((item) => item.customer === 'c7'));
    });
  });
});

describe('queries that are kept', () => {
  let server;
  before(async () => {
    server = await startServer();
    await makeContainer(server, 'asked', ORDERS, 100_000);
    await writeItems(server, 'asked', 'orders', orders(300), 'customer');
  });
  after(() => server.stop());

  test('queries are saved by name, found in the history, and kept in this browser only', async () => {
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/db/asked/orders/query`);
      const editor = page.getByLabel('Query', { exact: true });
      await editor.fill('SELECT c.city, COUNT(1) AS n FROM c GROUP BY c.city');
      await page.keyboard.press('Control+Enter');
      await page.getByText('3 rows').waitFor();
      await page.getByRole('button', { name: 'Save this query' }).click();
      const dialog = page.getByRole('dialog');
      await dialog.getByLabel('Name').fill('orders by city');
      await dialog.getByRole('button', { name: 'Save', exact: true }).click();
      await dialog.waitFor({ state: 'detached' });
      await editor.fill('SELECT VALUE 1');
      await page.keyboard.press('Control+Enter');
      await page.getByText('1 row', { exact: true }).waitFor();

      // It is there after a reload.
      await page.reload();
      await editor.waitFor();
      await page.getByRole('button', { name: 'History and saved queries' }).click();
      await dialog.getByRole('heading', { name: 'Saved' }).waitFor();
      await dialog.getByText('SELECT VALUE 1').waitFor();
      await findNoViolation(page, 'history');
      await dialog.getByRole('button', { name: /^orders by city/ }).click();
      await editor.getByText('GROUP BY c.city').waitFor();
      await page.getByRole('button', { name: 'History and saved queries' }).click();
      await dialog.getByRole('button', { name: 'Forget orders by city' }).click();
      await dialog.getByRole('heading', { name: 'Saved' }).waitFor({ state: 'detached' });
      await page.keyboard.press('Escape');

      // The rows are saved as files too.
      await page.getByRole('button', { name: 'Run', exact: true }).click();
      await page.getByText('3 rows').waitFor();
      await page.getByRole('button', { name: 'More result actions' }).click();
      const csv = await savedBy(page, () => page.getByRole('button', { name: 'Rows as CSV' }).click());
      assert.deepEqual(csv.text.split('\r\n').sort(), ['Lima,100', 'Oslo,100', 'Seoul,100', 'city,n']);
    });
  });

  test('a query that runs is stopped', async () => {
    await inTab({}, async (page) => {
      // The answer is held back until the query was stopped.
      let release;
      const held = new Promise((resolve) => (release = resolve));
      await page.route('**/colls/orders/docs', async (route) => {
        if (route.request().postData()?.includes('slow')) await held;
        await route.continue().catch(() => {});
      });
      await page.goto(`${server.page}#/db/asked/orders/query`);
      await page.getByLabel('Query', { exact: true }).fill('SELECT "slow" AS slow FROM c');
      await page.keyboard.press('Control+Enter');
      await page.getByRole('button', { name: 'Stop' }).click();
      await page.getByText('Stopped.').waitFor();
      await page.getByRole('button', { name: 'Run', exact: true }).waitFor();
      release();
      await page.getByRole('button', { name: 'Run', exact: true }).click();
      await page.getByText('100 rows, more to come').waitFor();
      assert.equal(await page.getByText('Stopped.').count(), 0);
    });
  });
});
