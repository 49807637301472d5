// The page in Chromium, against the real server.
import assert from 'node:assert/strict';
import { writeFileSync, mkdtempSync, readdirSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { load } from './modules.mjs';
import { ORDERS, findNoViolation, inTab, makeContainer, orders, request, shot, startBrowser, startServer, stopBrowser, writeItems } from './support.mjs';

const embed = join(dirname(fileURLToPath(import.meta.url)), '../embed');

before(startBrowser);
after(stopBrowser);

describe('what the server sends', () => {
  let server;
  before(async () => (server = await startServer('--test-controls')));
  after(() => server.stop());

  test('browsers are sent to the page, clients get the account', async () => {
    const browser = await fetch(`${server.origin}/`, { headers: { accept: 'text/html,*/*;q=0.8' }, redirect: 'manual' });
    assert.equal(browser.status, 302);
    assert.equal(browser.headers.get('location'), '/_explorer/');
    const client = await request(server, 'GET', '/', undefined, { accept: 'text/html,*/*' });
    assert.equal(client.body.id, 'orrery');
    assert.equal((await fetch(`${server.origin}/`, { headers: { accept: 'application/json' } })).status, 401);
    const pem = await (await fetch(`${server.origin}/_explorer/emulator.pem`)).text();
    assert.match(pem, /BEGIN CERTIFICATE/);
  });

  test('the page is strict about what may run, and its files are kept by browsers', async () => {
    const page = await fetch(server.page);
    const html = await page.text();
    assert.equal(page.status, 200);
    const policy = page.headers.get('content-security-policy');
    for (const part of ["default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "frame-ancestors 'none'", "base-uri 'none'", "form-action 'none'"]) assert.ok(policy.includes(part), part);
    assert.doesNotMatch(policy, /unsafe|https?:|\*/);
    assert.doesNotMatch(html, /<script(?![^>]*\bsrc=)|<style|\son\w+=|javascript:/);
    assert.equal(page.headers.get('cache-control'), 'no-cache');
    assert.equal(page.headers.get('x-content-type-options'), 'nosniff');
    const again = await fetch(server.page, { headers: { 'if-none-match': page.headers.get('etag') } });
    assert.equal(again.status, 304);
    const names = [...html.matchAll(/(?:src|href)="(\/_explorer\/[^"]+)"/g)].map((match) => match[1]);
    assert.ok(names.length >= 3);
    for (const name of names) {
      const file = await fetch(server.origin + name);
      assert.match(file.headers.get('cache-control'), /immutable/, name);
      assert.equal(file.headers.get('content-encoding'), 'gzip', name);
      assert.match(name, /-[\w-]{8}\.\w+$/);
    }
    assert.equal((await fetch(`${server.page}assets/none.js`)).status, 404);
  });

  test('it is small', () => {
    const sizes = readdirSync(join(embed, 'assets')).map((name) => [name, statSync(join(embed, 'assets', name)).size]);
    const all = sizes.reduce((sum, [, size]) => sum + size, 0);
    const editor = sizes.find(([name]) => name.startsWith('setup'))[1];
    assert.ok(all < 1_500_000, `the page adds ${all} bytes to the binary`);
    assert.ok(all - editor < 200_000, `${all - editor} bytes before the editor`);
  });

  test('other pages cannot use a server on this machine', async () => {
    const evil = createServer((_, response) => response.setHeader('content-type', 'text/html').end('<title>evil</title>'));
    await new Promise((resolve) => evil.listen(0, '127.0.0.1', resolve));
    const port = evil.address().port;
    const other = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox', '--host-resolver-rules=MAP evil.example 127.0.0.1'] });
    try {
      const page = await other.newPage();
      await page.goto(`http://evil.example:${port}/`);
      const asked = await page.evaluate(async (origin) => {
        const tries = {};
        for (const [name, options] of [['read', {}], ['blind', { mode: 'no-cors', method: 'POST', body: '{"id":"evil"}' }]]) {
          tries[name] = await fetch(`${origin}/dbs`, options).then((response) => response.type, () => 'refused');
        }
        return tries;
      }, server.origin);
      assert.equal(asked.read, 'refused');
      // A blind request reaches the server; what it does there is nothing.
      assert.equal((await request(server, 'GET', '/dbs/evil')).status, 404);
      // The page's own name resolves to this machine now: the browser takes the server for the page's own.
      const rebound = await page.goto(`http://evil.example:${new URL(server.origin).port}/_explorer/`);
      assert.equal(rebound.status(), 403);
      assert.equal((await page.goto(`http://evil.example:${new URL(server.origin).port}/_orrery/health`)).status(), 403);
    } finally {
      await other.close();
      evil.close();
    }
  });

  test('the answers are what the page takes them for', async () => {
    const shapes = await load('api/shapes.ts');
    await makeContainer(server, 'shaped', ORDERS, 1000);
    await writeItems(server, 'shaped', 'orders', orders(50), 'customer');
    const at = 'database=shaped&container=orders';
    const names = { database: 'shaped', container: 'orders' };
    await request(server, 'POST', '/_orrery/recordings', names);
    await makeContainer(server, 'shaped', { ...ORDERS, id: 'repartitioned' }, 1000);
    await writeItems(server, 'shaped', 'repartitioned', orders(20), 'customer');
    assert.equal((await request(server, 'POST', '/_orrery/repartition', { database: 'shaped', container: 'repartitioned', partitionKey: { paths: ['/city'], kind: 'Hash', version: 2 }, keepAs: 'repartitioned-before' })).status, 200);
    await makeContainer(server, 'shaped', { id: 'synthetic', partitionKey: { paths: ['/partitionKey'], kind: 'Hash', version: 2 } }, 1000);
    const definition = { format: 1, kind: 'concatenate', parts: ['/customer', '/city'] };
    const set = await request(server, 'POST', '/_orrery/synthetic', { database: 'shaped', container: 'synthetic', definition });
    assert.equal(set.status, 200, JSON.stringify(set.body));
    // Work in the background: a tenth of the throughput deletes this many items for a while.
    await makeContainer(server, 'shaped', { ...ORDERS, id: 'purged' }, 400);
    await writeItems(server, 'shaped', 'purged', orders(300).map((item) => ({ ...item, customer: 'gone' })), 'customer');
    assert.equal((await request(server, 'POST', '/dbs/shaped/colls/purged/operations/partitionkeydelete', undefined, { 'x-ms-documentdb-partitionkey': '["gone"]' })).status, 200);
    const sampled = orders(400).map((item, index) => ({ ...item, at: new Date(Date.UTC(2026, 0, 1) + index * 3_600_000).toISOString() }));
    for (const [shape, method, path, body] of [
      ['partitions', 'GET', `/_orrery/partitions?${at}`],
      ['heat', 'GET', `/_orrery/partitions/heat?${at}&seconds=20&keys=5`],
      ['located', 'GET', `/_orrery/partitions/locate?${at}&partitionKey=%5B%22c1%22%5D`],
      ['partitionKeys', 'GET', `/_orrery/partitions/keys?${at}&partition=0&keys=5`],
      ['throttles', 'GET', '/_orrery/throttles'],
      ['store', 'GET', '/_orrery/store'],
      ['health', 'GET', '/_orrery/health'],
      ['repartition', 'GET', '/_orrery/repartition?database=shaped&container=repartitioned'],
      ['synthetic', 'GET', '/_orrery/synthetic?database=shaped&container=synthetic'],
      ['advice', 'POST', '/_orrery/advise', { items: sampled, throughput: 40_000, current: ['/customer'], candidates: ['/city'] }],
      ['clock', 'GET', '/_orrery/clock'],
      ['faults', 'GET', '/_orrery/faults'],
      ['server', 'GET', '/_orrery/server'],
      ['explained', 'POST', '/_orrery/explain', { ...names, query: 'SELECT * FROM c WHERE c.total > 5 ORDER BY c.total' }],
      ['explainedCharge', 'POST', '/_orrery/explain-charge', { ...names, operation: 'query', query: 'SELECT * FROM c' }],
      ['recordings', 'GET', '/_orrery/recordings'],
    ]) {
      const answer = await request(server, method, path, body);
      assert.equal(answer.status, 200, `${path} ${JSON.stringify(answer.body)}`);
      assert.deepEqual(shapes[shape].check(answer.body, shape), []);
    }
    const tasks = (await request(server, 'GET', '/_orrery/server')).body.background;
    assert.deepEqual(tasks.filter((task) => task.container === 'dbs/shaped/colls/purged').map((task) => [task.kind, task.detail]), [['delete by key', 'removing the items of 1 key']]);
    const heat = (await request(server, 'GET', `/_orrery/partitions/heat?${at}&seconds=20`)).body;
    assert.equal(heat.partitions[0].usedBySecond.length, 20);
    const located = (await request(server, 'GET', `/_orrery/partitions/locate?${at}&partitionKey=%5B%22redmond%22%5D`)).body;
    assert.equal(located.effectiveKey, '22E342F38A486A088463DFF7838A5963');
    const short = await request(server, 'GET', `/_orrery/partitions/locate?${at}&partitionKey=%5B%22a%22,%22b%22%5D`);
    assert.equal(short.status, 400);
    const keys = (await request(server, 'GET', `/_orrery/partitions/keys?${at}&partition=0&keys=3`)).body;
    assert.equal(keys.logicalPartitions, 50);
    assert.equal(keys.largestKeys.length, 3);
    assert.equal((await request(server, 'GET', `/_orrery/partitions/keys?${at}&partition=77`)).status, 404);
  });
});

describe('signing in', () => {
  test('elsewhere a key is asked for, kept in the tab, and never sent', async () => {
    const key = Buffer.alloc(64, 'a key ').toString('base64');
    const server = await startServer('--key', key, '--allow-well-known-key=false');
    try {
      await inTab({}, async (page) => {
        const sent = [];
        page.on('request', (one) => sent.push(`${one.url()} ${JSON.stringify(one.headers())} ${one.postData() ?? ''}`));
        await page.goto(server.page);
        const field = page.getByLabel('Account key or resource token');
        await field.fill(Buffer.alloc(64, 'other').toString('base64'));
        await page.getByRole('button', { name: 'Sign in' }).click();
        await page.getByText('does not accept this key').waitFor();
        await findNoViolation(page, 'sign in');
        await shot(page, 'sign-in');
        await field.fill(key);
        await page.getByRole('button', { name: 'Sign in' }).click();
        await page.getByRole('heading', { name: 'A server with nothing in it yet' }).waitFor();
        await page.reload();
        await page.getByRole('heading', { name: 'A server with nothing in it yet' }).waitFor();
        assert.equal(await page.evaluate(() => JSON.stringify(localStorage)), '{}');
        assert.ok(!sent.some((text) => text.includes(key)), 'the key was sent');
        await page.getByRole('button', { name: 'Sign out' }).click();
        await field.waitFor();
        await page.reload();
        await field.waitFor();
      });
    } finally {
      await server.stop();
    }
  });
});

describe('items', () => {
  let server;
  before(async () => (server = await startServer()));
  after(() => server.stop());

  test('from nothing to an item, a conflict and back', async () => {
    await inTab({}, async (page) => {
      await page.goto(server.page);
      await page.getByRole('button', { name: 'New container' }).first().click();
      await page.getByLabel('Database', { exact: true }).fill('shop');
      await page.getByLabel('Container name').fill('things');
      await page.getByLabel('Partition key').fill('kind');
      await findNoViolation(page, 'new container');
      await page.getByRole('button', { name: 'Create container' }).click();
      await page.getByText('No items yet.').waitFor();
      await page.getByRole('button', { name: 'New item' }).first().click();
      const editor = page.getByLabel('Item as JSON');
      await editor.fill('{"id": "lamp", "kind": "light", "price": 20}');
      await page.getByRole('button', { name: 'Create', exact: true }).click();
      await page.getByRole('gridcell', { name: 'lamp', exact: true }).waitFor();
      const stored = await request(server, 'GET', '/dbs/shop/colls/things/docs/lamp', undefined, { 'x-ms-documentdb-partitionkey': '["light"]' });
      assert.equal(stored.body.price, 20);

      // Edited and compared before it is saved.
      await editor.fill('{"id": "lamp", "kind": "light", "price": 25}');
      await page.getByRole('button', { name: 'Review changes' }).click();
      await page.getByLabel('Changes').getByText('25').waitFor();
      await page.getByRole('button', { name: 'Save', exact: true }).click();
      await page.getByText(/saved, .* RU/).waitFor();

      // Somebody else writes; the next save is refused and explained.
      const theirs = { id: 'lamp', kind: 'light', price: 99, colour: 'red' };
      assert.equal((await request(server, 'PUT', '/dbs/shop/colls/things/docs/lamp', theirs, { 'x-ms-documentdb-partitionkey': '["light"]' })).status, 200);
      await editor.fill('{"id": "lamp", "kind": "light", "price": 30}');
      await page.getByRole('button', { name: 'Save', exact: true }).click();
      await page.getByRole('heading', { name: 'Someone else has changed this item' }).waitFor();
      await page.getByLabel('Your text against theirs').getByText('red').waitFor();
      await findNoViolation(page, 'conflict');
      await shot(page, 'conflict');
      await page.getByRole('button', { name: 'Overwrite with mine' }).click();
      await page.getByText(/saved, .* RU/).waitFor();
      const final = await request(server, 'GET', '/dbs/shop/colls/things/docs/lamp', undefined, { 'x-ms-documentdb-partitionkey': '["light"]' });
      assert.equal(final.body.price, 30);
      assert.equal(final.body.colour, undefined);

      // A text that is no JSON is not sent; the key of an item is not changed.
      await editor.fill('{"id": "lamp", ');
      await page.getByRole('button', { name: 'Save', exact: true }).click();
      await page.getByText('This is not valid JSON').waitFor();
      await editor.fill('{"id": "lamp", "kind": "dark"}');
      await page.getByRole('button', { name: 'Save', exact: true }).click();
      await page.getByText('The id and partition key of an item cannot be changed').waitFor();

      await page.getByRole('button', { name: 'Delete', exact: true }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Delete', exact: true }).click();
      await page.getByText('No items yet.').waitFor();
    });
  });

  test('a file is uploaded with progress', async () => {
    await makeContainer(server, 'upload', ORDERS, 20000);
    const file = join(mkdtempSync(join(tmpdir(), 'orrery-')), 'orders.jsonl');
    writeFileSync(file, orders(2500).map((item) => JSON.stringify(item)).join('\n'));
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/db/upload/orders/items`);
      await page.getByRole('button', { name: 'Upload a file' }).first().click();
      await page.getByLabel('File', { exact: true }).setInputFiles(file);
      const seen = page.evaluate(
        () =>
          new Promise((resolve) => {
            const steps = new Set();
            new MutationObserver(() => {
              const text = document.querySelector('dialog dd')?.textContent;
              if (text) steps.add(text);
              if (document.body.textContent.includes('All items are written.')) resolve([...steps]);
            }).observe(document.body, { childList: true, subtree: true, characterData: true });
          }),
      );
      await page.getByRole('button', { name: 'Upload', exact: true }).click();
      const steps = await seen;
      assert.ok(steps.length > 3, `progress was shown: ${steps}`);
      assert.equal(steps.at(-1), '2,500 items');
      await page.getByRole('button', { name: 'Close', exact: true }).last().click();
      await page.getByText('2,500 items').first().waitFor();
      let count;
      // The upload may have used up the second's throughput.
      do count = await request(server, 'POST', '/dbs/upload/colls/orders/docs', { query: 'SELECT VALUE COUNT(1) FROM c' }, { 'content-type': 'application/query+json', 'x-ms-documentdb-isquery': 'true', 'x-ms-documentdb-query-enablecrosspartition': 'true' });
      while (count.status === 429);
      assert.deepEqual(count.body.Documents, [2500]);
      // The filter.
      await page.getByLabel('WHERE').fill('c.customer = "c7"');
      await page.getByRole('button', { name: 'Filter', exact: true }).click();
      await page.getByText('50 items').waitFor();
    });
  });

  test('a hundred thousand rows scroll', async (t) => {
    const ROWS = 100_000;
    await makeContainer(server, 'large', ORDERS, 1_000_000);
    await writeItems(server, 'large', 'orders', orders(ROWS), 'customer');
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/db/large/orders/items`);
      const grid = page.getByRole('grid', { name: 'Items' });
      await grid.getByRole('row').nth(20).waitFor();
      assert.equal(await grid.getAttribute('aria-rowcount'), String(ROWS + 1));
      // Whoever drags to the end loads page after page.
      await page.evaluate(
        (rows) =>
          new Promise((resolve) => {
            const shown = document.querySelector('.grid');
            const body = document.querySelector('.grid-body');
            const step = () => {
              shown.scrollTop = shown.scrollHeight;
              if (body.offsetHeight >= rows * 30) resolve();
              else requestAnimationFrame(step);
            };
            step();
          }),
        ROWS,
      );
      await page.getByText('100,000 items', { exact: true }).last().waitFor();
      const drawn = await page.locator('.grid-body .grid-row').count();
      assert.ok(drawn < 100, `${drawn} rows are drawn`);
      // After a jump the rows in sight are drawn, and no more of them. How long it takes is said, not judged: it depends on
      // what else the machine does.
      const ms = await page.evaluate(async () => {
        const shown = document.querySelector('.grid');
        const began = performance.now();
        for (let at = 0; at < 20; at++) {
          shown.scrollTop = (at * shown.scrollHeight) / 20;
          await new Promise(requestAnimationFrame);
        }
        return (performance.now() - began) / 20;
      });
      t.diagnostic(`a jump in ${ROWS} rows is drawn after ${ms.toFixed(1)} ms`);
      assert.ok((await page.locator('.grid-body .grid-row').count()) < 100);
    });
  });
});

describe('queries', () => {
  let server;
  before(async () => (server = await startServer('--partitions-at-creation', '4')));
  after(() => server.stop());

  test('from the first page to a chart, without reading anything', async () => {
    await inTab({}, async (page) => {
      await page.goto(server.page);
      await page.getByRole('button', { name: 'Load the sample' }).click();
      await page.getByRole('img', { name: 'revenue by city, 12 rows' }).waitFor();
      await page.getByText('12 rows').waitFor();
      await findNoViolation(page, 'chart');
      await shot(page, 'query-chart');
      await page.getByRole('tab', { name: 'Plan' }).click();
      await page.getByText('4 of 4 partitions').waitFor();
      await findNoViolation(page, 'plan');
      await shot(page, 'query-plan');
      await page.getByRole('tab', { name: 'Charge' }).click();
      await page.getByRole('cell', { name: 'Items loaded' }).waitFor();
      await findNoViolation(page, 'charge');
      await page.getByRole('tab', { name: 'Table' }).click();
      await page.getByRole('gridcell', { name: 'Lagos' }).waitFor();
    });
  });

  test('Enter takes what completion proposes, Escape does not', async () => {
    await makeContainer(server, 'typed', ORDERS, 100_000);
    await writeItems(server, 'typed', 'orders', orders(30), 'customer');
    await inTab({}, async (page) => {
      // The editor takes Enter for a new line in the first moments after the list has opened: the clock is moved past them.
      await page.clock.install();
      await page.goto(`${server.page}#/db/typed/orders/query`);
      const editor = page.getByLabel('Query', { exact: true });
      await page.getByText(/AVG\(c\.total\)/).waitFor();
      const propose = async (typed, option) => {
        await page.keyboard.type(typed);
        await page.getByRole('option', { name: option }).first().waitFor();
        await page.clock.fastForward(1000);
      };
      await editor.click();
      await page.keyboard.press('Control+a');
      await propose('SELECT * FROM c WHERE c.to', /total/);
      await page.keyboard.press('Enter');
      await propose(' = 7 AND ARRAY_CONT', /^ARRAY_CONTAINS\b/);
      await page.keyboard.press('Escape');
      await page.locator('.cm-tooltip-autocomplete').waitFor({ state: 'detached' });
      assert.equal((await editor.innerText()).trim(), 'SELECT * FROM c WHERE c.total = 7 AND ARRAY_CONT');
      for (let at = 0; at < 'ARRAY_CONT'.length; at++) await page.keyboard.press('Backspace');
      await propose('c.ci', /city/);
      await page.keyboard.press('Enter');
      await page.keyboard.type(' = "Lima"');
      assert.equal((await editor.innerText()).trim(), 'SELECT * FROM c WHERE c.total = 7 AND c.city = "Lima"');
      await page.keyboard.press('Control+Enter');
      await page.getByRole('grid', { name: 'Rows' }).getByText('Lima').first().waitFor();
    });
  });

  test('completion, errors at their place, parameters, pages', async () => {
    await makeContainer(server, 'asked', ORDERS, 100_000);
    await writeItems(server, 'asked', 'orders', orders(300), 'customer');
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/db/asked/orders/query`);
      const editor = page.getByLabel('Query', { exact: true });
      await editor.click();
      await page.getByText('SELECT VALUE COUNT(1) FROM c').waitFor();
      await page.getByText(/AVG\(c\.total\)/).waitFor();
      await page.keyboard.press('Control+a');
      await page.keyboard.type('SELECT * FROM c WHERE c.to');
      await page.getByRole('option', { name: /total/ }).waitFor();
      await shot(page, 'query-completion');
      await page.getByRole('option', { name: /total/ }).click();
      await page.keyboard.type(' > 10 AND STARTSW');
      await page.getByRole('option', { name: /STARTSWITH/ }).waitFor();
      await page.getByText('Whether a text starts with another.').waitFor();
      await page.getByRole('option', { name: /STARTSWITH/ }).click();
      await page.keyboard.type('c.city, "O"');
      const text = await editor.innerText();
      assert.equal(text.trim(), 'SELECT * FROM c WHERE c.total > 10 AND STARTSWITH(c.city, "O")');
      await page.keyboard.press('Control+Enter');
      await page.getByRole('grid', { name: 'Rows' }).getByText('Oslo').first().waitFor();

      // An error is marked where it is.
      await page.keyboard.press('Control+a');
      await page.keyboard.type('SELECT * FROM c WHERE c.total = = 3', { delay: 2 });
      await page.keyboard.press('Escape');
      await page.keyboard.press('Control+Enter');
      await page.getByRole('alert').waitFor();
      await page.locator('.cm-lintRange-error').first().waitFor();
      const marked = await page.locator('.cm-lintRange-error').first().innerText();
      assert.equal(marked, '=');
      await shot(page, 'query-error');

      // Parameters, and pages by scrolling.
      await page.getByRole('button', { name: 'Parameters' }).click();
      await page.getByLabel('Parameters as JSON').fill('{"least": 0}');
      await editor.fill('SELECT * FROM c WHERE c.total >= @least');
      await editor.press('Control+Enter');
      await page.getByText('100 rows, more to come').waitFor();
      await page.locator('.grid').evaluate((shown) => (shown.scrollTop = shown.scrollHeight));
      await page.getByText('200 rows, more to come').waitFor();
      await page.getByRole('tab', { name: 'JSON' }).click();
      await page.getByLabel('Rows as JSON').getByText('"customer"').first().waitFor();
      await page.getByRole('button', { name: 'History and saved queries' }).click();
      await page.getByRole('dialog').getByText('@least').waitFor();
    });
  });
});

describe('partitions', () => {
  test('a hot key is refused and explained, a split is watched under load', async () => {
    const server = await startServer('--partitions-at-creation', '4');
    await makeContainer(server, 'hot', ORDERS, 4000);
    await writeItems(server, 'hot', 'orders', orders(200), 'customer');
    const key = (await request(server, 'GET', '/_orrery/partitions/locate?database=hot&container=orders&partitionKey=%5B%22c1%22%5D')).body;
    let stopped = false;
    const lane = async (number) => {
      for (let at = 0; !stopped; at++) {
        const customer = at % 10 === 0 ? `c${at % 50}` : 'c1';
        const item = { id: `x${number}-${at % 100}`, customer, text: 'x'.repeat(4000), numbers: Array.from({ length: 60 }, (_, n) => n) };
        await request(server, 'POST', '/dbs/hot/colls/orders/docs', item, { 'x-ms-documentdb-partitionkey': JSON.stringify([customer]), 'x-ms-documentdb-is-upsert': 'true' });
      }
    };
    const load = Array.from({ length: 12 }, (_, number) => lane(number));
    try {
      await inTab({ height: 1000 }, async (page) => {
        await page.goto(`${server.page}#/db/hot/orders/partitions`);
        await page.getByRole('button', { name: /^Partition \d+ / }).nth(3).waitFor();
        // The hot partition refuses; the page says which key it is, and what would help.
        await page.getByRole('button', { name: new RegExp(`^Partition ${key.partition} .*refusing`) }).waitFor();
        await page.getByText('Most of the load of partition').waitFor();
        assert.match(await page.locator('.notice.warning').innerText(), /\["c1"\]/);
        await page.getByLabel('Value of /customer').fill('c1');
        await page.getByRole('button', { name: 'Find' }).click();
        await page.getByText(`partition ${key.partition}`, { exact: true }).first().waitFor();
        await page.getByRole('heading', { name: `Partition ${key.partition}` }).waitFor();
        await page.getByRole('button', { name: '["c1"]' }).first().waitFor();
        await findNoViolation(page, 'partitions');
        await shot(page, 'partitions');
        // Split it while the load goes on: the strip shows five.
        await page.getByRole('button', { name: 'Split', exact: true }).click();
        await page.getByRole('dialog').getByRole('button', { name: 'Split', exact: true }).click();
        await page.getByText(new RegExp(`Partition ${key.partition} is now \\d+ and \\d+`)).waitFor();
        await page.getByRole('button', { name: /^Partition \d+ / }).nth(4).waitFor();
        assert.equal(await page.getByRole('button', { name: /^Partition \d+ / }).count(), 5);
        await shot(page, 'partitions-split');
        // A key leads to its items, once there is room for a query.
        stopped = true;
        await Promise.all(load);
        const located = (await request(server, 'GET', '/_orrery/partitions/locate?database=hot&container=orders&partitionKey=%5B%22c1%22%5D')).body;
        await page.getByRole('button', { name: new RegExp(`^Partition ${located.partition} `) }).click();
        await page.getByRole('button', { name: '["c1"]' }).first().click();
        await page.getByRole('gridcell', { name: 'c1', exact: true }).first().waitFor();
        assert.equal(await page.getByLabel('WHERE').inputValue(), 'c["customer"] = "c1"');
      });
    } finally {
      stopped = true;
      await Promise.all(load);
      await server.stop();
    }
  });
});

/** Every view, and a text that it shows once it is there. */
const VIEWS = [
  ['#/', 'What is here'],
  ['#/db/shop', '1 container'],
  ['#/db/shop/orders/items', /\d+ items/],
  ['#/db/shop/orders/query', 'Run'],
  ['#/db/shop/orders/partitions', 'The hash space'],
  ['#/db/shop/orders/scripts', 'Stored procedures'],
  ['#/db/shop/orders/changes', 'From the beginning'],
  ['#/db/shop/orders/advisor', 'Which key would be best?'],
  ['#/db/shop/orders/settings', 'Time to live'],
  ['#/server', 'Background work'],
];

describe('the other pages', () => {
  let server;
  before(async () => {
    server = await startServer('--test-controls');
    await makeContainer(server, 'shop', ORDERS, 1000);
    await writeItems(server, 'shop', 'orders', orders(120), 'customer');
  });
  after(() => server.stop());

  test('settings are checked by the server’s own rules', async () => {
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/db/shop/orders/settings`);
      const policy = page.getByLabel('Indexing', { exact: true }).last();
      await policy.fill('{"indexingMode":"consistent","includedPaths":[{"path":"nothing"}]}');
      await page.locator('section', { hasText: 'Policies' }).getByRole('button', { name: 'Save' }).click();
      await page.getByRole('alert').waitFor();
      await policy.fill('{"indexingMode":"consistent","automatic":true,"includedPaths":[{"path":"/total/?"}],"excludedPaths":[{"path":"/*"}]}');
      await page.locator('section', { hasText: 'Policies' }).getByRole('button', { name: 'Save' }).click();
      await page.getByText('The definition was changed.').waitFor();
      const stored = await request(server, 'GET', '/dbs/shop/colls/orders');
      assert.deepEqual(stored.body.indexingPolicy.includedPaths.map((one) => one.path), ['/total/?']);
      await page.getByLabel('Request units per second').fill('2000');
      await page.locator('section', { hasText: 'Scale' }).getByRole('button', { name: 'Save' }).click();
      await page.getByText('The throughput was changed.').waitFor();
      await page.getByText('Only those with a ttl').click();
      await page.locator('section', { hasText: 'Time to live' }).getByRole('button', { name: 'Save' }).click();
      await page.getByText('The time to live was changed.').waitFor();
      assert.equal((await request(server, 'GET', '/dbs/shop/colls/orders')).body.defaultTtl, -1);
      await page.getByText('The time to live was changed.').waitFor({ state: 'detached' });
      await findNoViolation(page, 'settings');
    });
  });

  test('procedures are written and run, with logs and charge', async () => {
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/db/shop/orders/scripts`);
      await page.getByRole('button', { name: 'New procedure' }).last().click();
      await page.getByLabel('Code of the procedure').getByText('getContext').first().waitFor();
      await page.getByRole('button', { name: 'Create', exact: true }).click();
      await page.getByLabel('Partition key /customer').fill('c3');
      await page.getByRole('button', { name: 'Run', exact: true }).click();
      const outcome = page.locator('.outcome');
      await outcome.getByText('"greeting": "hello"').waitFor();
      await outcome.getByText('running in one transaction').waitFor();
      await outcome.getByText(/\d RU/).waitFor();
      await page.getByText(/was saved for/).waitFor({ state: 'detached' });
      await findNoViolation(page, 'scripts');
    });
  });

  test('changes are seen as they are written', async () => {
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/db/shop/orders/changes`);
      await page.getByRole('button', { name: 'From the beginning' }).click();
      await page.getByText('120 changes so far').waitFor();
      await writeItems(server, 'shop', 'orders', [{ id: 'fresh', customer: 'c1' }], 'customer');
      await page.getByRole('gridcell', { name: 'fresh', exact: true }).waitFor();
      await findNoViolation(page, 'changes');
    });
  });

  test('the advisor measures, and a container is repartitioned with its progress', async () => {
    await makeContainer(server, 'advised', ORDERS, 10_000);
    await writeItems(server, 'advised', 'orders', orders(400), 'customer');
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/db/advised/orders/advisor`);
      await page.getByRole('button', { name: 'Record', exact: true }).click();
      await page.getByText('0 requests so far').waitFor();
      await request(server, 'GET', '/dbs/advised/colls/orders/docs/o000001', undefined, { 'x-ms-documentdb-partitionkey': '["c1"]' });
      await page.getByText('1 request so far').waitFor();
      await page.getByRole('button', { name: 'Stop recording' }).click();
      await page.getByLabel('use it').uncheck();
      await page.getByRole('button', { name: 'Measure' }).click();
      const report = page.getByRole('region', { name: 'Report' });
      await report.getByText('in use').first().waitFor();
      await findNoViolation(page, 'advisor');
      await shot(page, 'advisor');
      const other = report.locator('article', { has: page.locator('code', { hasText: /^\/id$/ }) });
      await other.getByRole('button', { name: 'Use this key…' }).click();
      await page.getByLabel(/Type “orders”/).fill('orders');
      await page.getByRole('button', { name: 'Repartition', exact: true }).click();
      await page.getByRole('heading', { name: 'Repartitioning: done' }).waitFor();
      assert.deepEqual((await request(server, 'GET', '/dbs/advised/colls/orders')).body.partitionKey.paths, ['/id']);
      assert.equal((await request(server, 'GET', '/dbs/advised/colls/orders-before')).status, 200);
    });
  });

  test('users, permissions and tokens; what a token may see', async () => {
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/db/shop`);
      await page.getByLabel('Name of a new user').fill('reader');
      await page.getByRole('button', { name: 'Add user' }).click();
      await page.getByRole('button', { name: 'reader' }).click();
      await page.getByRole('button', { name: 'Add permission' }).click();
      await page.getByRole('cell', { name: 'orders-read', exact: true }).waitFor();
      await findNoViolation(page, 'permissions');
      const token = (await request(server, 'GET', '/dbs/shop/users/reader/permissions')).body.Permissions[0]._token;
      await page.evaluate((value) => sessionStorage.setItem('orrery.credential', JSON.stringify({ kind: 'token', token: value })), token);
      await page.goto(`${server.page}#/`);
      await page.reload();
      await page.getByLabel('Database', { exact: true }).fill('shop');
      await page.getByLabel('Container', { exact: true }).fill('orders');
      await page.getByRole('button', { name: 'Open', exact: true }).click();
      await page.getByRole('gridcell', { name: 'Lima' }).first().waitFor();
      assert.equal(await page.getByRole('link', { name: 'Partitions', exact: true }).count(), 0);
    });
  });

  test('the server shows what it is asked, its clock and faults', async () => {
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/server`);
      await page.getByRole('cell', { name: 'batch item' }).waitFor();
      await page.getByRole('button', { name: 'Add the rule' }).click();
      await page.getByRole('button', { name: /Remove the rule/ }).waitFor();
      await page.getByRole('button', { name: /Remove the rule/ }).click();
      await page.getByText('None.').waitFor();
      await page.getByRole('button', { name: '+ 1 hour' }).click();
      await page.getByText('1 h 0 min ahead').waitFor();
      await page.getByRole('button', { name: 'Set it right' }).click();
      await page.getByText('1 h 0 min ahead').waitFor({ state: 'detached' });
      await page.getByText('The clock was reset.').waitFor({ state: 'detached' });
      await findNoViolation(page, 'server');
      await shot(page, 'server');
    });
  });

  test('everything is reached by keyboard, in both themes, at 360 pixels and on 4K', async () => {
    for (const [name, options] of [['narrow', { width: 360, height: 740, dark: true }], ['dark', { dark: true }], ['4k', { width: 3840, height: 2160 }]]) {
      await inTab(options, async (page) => {
        await page.goto(server.page);
        await page.getByRole('heading', { name: 'What is here' }).waitFor();
        await findNoViolation(page, `${name}: home`);
        await page.keyboard.press('Control+k');
        await page.getByRole('combobox', { name: 'Go to a container' }).fill('orders');
        await page.getByRole('option', { name: /orders.*shop/ }).waitFor();
        await findNoViolation(page, `${name}: palette`);
        await page.keyboard.press('Enter');
        await page.waitForURL(/orders\/items/);
        const grid = page.getByRole('grid', { name: 'Items' });
        await grid.getByRole('row').nth(5).waitFor();
        await grid.focus();
        await page.keyboard.press('ArrowDown');
        await page.keyboard.press('Enter');
        await page.getByLabel('Item as JSON').getByText('"id"').waitFor();
        await findNoViolation(page, `${name}: item`);
        await shot(page, `items-${name}`);
        await page.goto(`${server.page}#/db/shop/orders/query`);
        await page.getByLabel('Query', { exact: true }).click();
        await page.keyboard.press('Control+Enter');
        await page.getByRole('grid', { name: 'Rows' }).waitFor();
        await findNoViolation(page, `${name}: query`);
        await shot(page, `query-${name}`);
        await page.goto(`${server.page}#/db/shop/orders/partitions`);
        await page.getByRole('button', { name: /^Partition 0/ }).waitFor();
        await shot(page, `partitions-${name}`);
        for (const [place, text] of VIEWS) {
          await page.goto(`${server.page}${place}`);
          await page.locator('main').getByText(text).filter({ visible: true }).first().waitFor();
          await findNoViolation(page, `${name}: ${place}`);
          await shot(page, `view-${name}-${place.replace(/\W+/g, '-')}`);
          const wide = await page.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
          assert.ok(wide <= 0, `${name}: ${place} is ${wide} pixels too wide`);
        }
      });
    }
  });

  test('a thousand containers and a thousand partitions are no burden', async () => {
    const wide = await startServer('--partitions-at-creation', '1000', '--no-throttle');
    try {
      await makeContainer(wide, 'wide', ORDERS, 400);
      await inTab({}, async (page) => {
        await page.goto(`${wide.page}#/db/wide/orders/partitions`);
        await page.locator('.strip-part').nth(999).waitFor({ state: 'attached' });
        await findNoViolation(page, 'a thousand partitions');
        await shot(page, 'partitions-1000');
      });
    } finally {
      await wide.stop();
    }
    const crowd = await startServer('--no-throttle');
    try {
      await request(crowd, 'POST', '/dbs', { id: 'crowd' });
      for (let at = 0; at < 480; at += 20) {
        await Promise.all(Array.from({ length: 20 }, (_, next) => request(crowd, 'POST', '/dbs/crowd/colls', { id: `c${String(at + next).padStart(4, '0')}`, partitionKey: { paths: ['/k'], kind: 'Hash', version: 2 } })));
      }
      await inTab({}, async (page) => {
        // The service allows an account 500; the page is given a thousand.
        await page.route('**/dbs/crowd/colls', async (route) => {
          const answer = await route.fetch();
          const feed = await answer.json();
          const listed = feed.DocumentCollections;
          for (let at = listed.length; at < 1000; at++) listed.push({ ...listed[0], id: `c${String(at).padStart(4, '0')}`, _rid: `${listed[0]._rid}${at}` });
          await route.fulfill({ response: answer, json: { ...feed, _count: listed.length } });
        });
        await page.goto(crowd.page);
        await page.getByRole('treeitem', { name: 'c0003' }).waitFor();
        assert.ok((await page.getByRole('treeitem').count()) < 80);
        await page.getByLabel('Filter databases and containers').fill('c0977');
        await page.getByRole('treeitem', { name: 'c0977' }).waitFor();
        await page.getByLabel('Filter databases and containers').fill('');
        await page.goto(`${crowd.page}#/db/crowd`);
        await page.getByRole('heading', { name: '1,000 containers' }).waitFor();
        await page.getByRole('button', { name: 'Show more of 1,000' }).click();
        await page.getByRole('link', { name: 'c0249', exact: true }).waitFor();
        await findNoViolation(page, 'a thousand containers');
        await page.keyboard.press('Control+k');
        await page.getByRole('combobox', { name: 'Go to a container' }).fill('c0999');
        await page.getByRole('option', { name: /c0999/ }).waitFor();
      });
    } finally {
      await crowd.stop();
    }
  });
});
