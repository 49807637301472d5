// Partitions, the advisor and the server's own page in Chromium.
import assert from 'node:assert/strict';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { load } from './modules.mjs';
import { ORDERS, findNoViolation, inTab, makeContainer, orders, request, shot, startBrowser, startServer, stopBrowser, writeItems } from './support.mjs';

before(startBrowser);
after(stopBrowser);

describe('a partition', () => {
  let server;
  before(async () => {
    server = await startServer('--partitions-at-creation', '2');
    await makeContainer(server, 'parts', ORDERS, 2000);
    await writeItems(server, 'parts', 'orders', orders(500), 'customer');
  });
  after(() => server.stop());

  test('a range shows its logical partitions, and one of them its items', async () => {
    const at = 'database=parts&container=orders';
    const { partitions } = (await request(server, 'GET', `/_orrery/partitions?${at}`)).body[0];
    const first = partitions.find((one) => one.min === '');
    const { largestKeys } = (await request(server, 'GET', `/_orrery/partitions/keys?${at}&partition=${first.id}&keys=1000`)).body;
    assert.equal(largestKeys.length, first.logicalPartitions);
    assert.ok(largestKeys.length > 10, 'more than the summary names');
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/db/parts/orders/partitions`);
      await page.getByRole('img', { name: 'Request units and refusals by second' }).waitFor();
      await page.getByRole('img', { name: /Use of 2 partitions over the last \d+ seconds/ }).waitFor();
      await page.getByRole('button', { name: new RegExp(`^Partition ${first.id} `) }).click();
      const details = page.getByRole('region', { name: `Partition ${first.id}` });
      // Shares stand beside the bars, in figures.
      await details.getByText(/\d+(\.\d)? % · .*items/).first().waitFor();
      await details.getByRole('button', { name: `Show all logical partitions (${first.logicalPartitions})` }).click();
      const dialog = page.getByRole('dialog', { name: `Logical partitions of partition ${first.id}` });
      await dialog.getByText(`${first.logicalPartitions} logical partitions`).waitFor();
      assert.deepEqual((await dialog.getByTitle('Show its items').allInnerTexts()).sort(), largestKeys.map((key) => key.partitionKey).sort());
      await findNoViolation(page, 'logical partitions');
      await shot(page, 'partition-keys');
      const wanted = largestKeys.at(-1).partitionKey;
      await dialog.getByLabel('Filter keys').fill(wanted);
      await dialog.getByText(/, 1 matching/).waitFor();
      await dialog.getByRole('button', { name: wanted, exact: true }).click();
      await page.waitForURL(/orders\/items/);
      await page.getByText('10 items', { exact: true }).last().waitFor();
      assert.equal(await page.getByLabel('WHERE').inputValue(), `c["customer"] = ${JSON.parse(wanted).map((part) => JSON.stringify(part))[0]}`);
    });
  });

  test('two partitions are merged into one', async () => {
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/db/parts/orders/partitions`);
      const parts = page.getByRole('button', { name: /^Partition \d+ / });
      await parts.nth(1).click();
      // The last one is merged with the one before it.
      await page.getByRole('button', { name: /^Merge with \d+$/ }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Merge', exact: true }).click();
      await page.getByText(/They are now partition \d+\./).waitFor();
      await parts.nth(1).waitFor({ state: 'detached' });
      assert.equal(await parts.count(), 1);
      const { PartitionKeyRanges } = (await request(server, 'GET', '/dbs/parts/colls/orders/pkranges')).body;
      assert.equal(PartitionKeyRanges.length, 1);
      assert.equal(PartitionKeyRanges[0].parents.length, 2);
    });
  });
});

describe('the advisor', () => {
  let server;
  before(async () => {
    server = await startServer('--no-throttle');
    await makeContainer(server, 'advised', ORDERS, 10_000);
    await writeItems(server, 'advised', 'orders', orders(1500), 'customer');
  });
  after(() => server.stop());

  test('keys are compared side by side, and the sliders ask what if', async () => {
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/db/advised/orders/advisor`);
      await page.getByRole('button', { name: 'Measure' }).click();
      const report = page.getByRole('region', { name: 'Report' });
      await report.getByRole('heading', { name: /over 7 partitions, 1,500 items/ }).waitFor();
      const compared = report.getByRole('region', { name: 'Keys compared' });
      await compared.getByRole('row', { name: /\/customer in use/ }).waitFor();
      assert.ok((await compared.getByRole('row').count()) > 3, 'several keys are compared');
      await findNoViolation(page, 'comparison of keys');
      await shot(page, 'advisor-compared');

      // More throughput means more partitions; more data too. The server is asked again, about the items that are known.
      const asked = () => page.waitForResponse((response) => response.url().endsWith('/_orrery/advise') && response.ok());
      await page.getByLabel(/What if it had .* RU\/s/).focus();
      let answer = asked();
      await page.keyboard.press('End');
      assert.equal((await (await answer).json()).throughput, 200_000);
      await report.getByRole('heading', { name: /over 34 partitions/ }).waitFor();
      await page.getByLabel('What if there were more data?').focus();
      answer = asked();
      await page.keyboard.press('End');
      assert.equal((await (await answer).json()).data.itemsTotal, 1_500_000);
      await report.getByRole('heading', { name: /1,500 items as a sample of 1,500,000/ }).waitFor();
    });
  });

  test('a file is measured before there is a container for it', async () => {
    const file = join(mkdtempSync(join(tmpdir(), 'orrery-')), 'sensors.jsonl');
    const readings = Array.from({ length: 2000 }, (_, at) => ({ id: `r${at}`, device: `d${at % 40}`, day: `2026-01-${String(1 + (at % 28)).padStart(2, '0')}`, value: at }));
    writeFileSync(file, readings.map((reading) => JSON.stringify(reading)).join('\n'));
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/db/advised/orders/advisor`);
      await page.getByLabel('From a file…').setInputFiles(file);
      await page.getByText('sensors.jsonl').waitFor();
      await page.getByLabel('Additional keys to measure').fill('/device,/day');
      await page.getByRole('button', { name: 'Measure' }).click();
      const report = page.getByRole('region', { name: 'Report' });
      await report.getByRole('heading', { name: /2,000 items/ }).waitFor();
      await report.getByRole('row', { name: /^\/device then \/day / }).waitFor();
      // Nothing of it can be applied to this container.
      assert.equal(await report.getByRole('button', { name: 'Use this key…' }).count(), 0);
    });
  });
});

describe('suffixes', () => {
  let server;
  before(async () => {
    server = await startServer('--no-throttle');
    await makeContainer(server, 'advised', ORDERS, 10_000);
  });
  after(() => server.stop());

  test('a slider shows what a number of suffixes would cost, and asks nothing for it', async () => {
    const file = join(mkdtempSync(join(tmpdir(), 'orrery-')), 'readings.jsonl');
    // All of a day is written on that day: the day alone is a hot key.
    const readings = Array.from({ length: 2000 }, (_, at) => ({ id: `r${at}`, device: `d${at % 40}`, day: `2026-01-${String(1 + (at >> 6)).padStart(2, '0')}`, value: at }));
    writeFileSync(file, readings.map((reading) => JSON.stringify(reading)).join('\n'));
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/db/advised/orders/advisor`);
      await page.getByLabel('From a file…').setInputFiles(file);
      await page.getByText('readings.jsonl').waitFor();
      await page.getByLabel('Additional keys to measure').fill('/device,/day');
      const [answer] = await Promise.all([page.waitForResponse((response) => response.url().endsWith('/_orrery/advise') && response.ok()), page.getByRole('button', { name: 'Measure' }).click()]);
      const [plan] = (await answer.json()).suffixPlans;
      assert.equal(plan.base, '/day');
      const card = page.locator('.card', { has: page.getByRole('heading', { name: 'A suffix for /day', exact: true }) });
      const slider = card.getByRole('slider');
      const shows = async (point) => {
        await card.getByLabel(`What if there were ${point.suffixes === 1 ? '1 suffix' : `${point.suffixes.toLocaleString('en-US')} suffixes`}?`).waitFor();
        await card.getByText(`needs ${Math.round(point.neededThroughput).toLocaleString('en-US')} RU/s`, { exact: true }).waitFor();
        await card.getByText(`busiest partition ${point.hotFactor.toFixed(1)} × the average`).waitFor();
      };
      // It begins at the best number.
      await shows(plan.curve.find((point) => point.suffixes === plan.best));
      await card.getByText(`${plan.best} needs the least throughput.`).waitFor();
      let asked = 0;
      page.on('request', (request) => (asked += request.url().endsWith('/_orrery/advise') ? 1 : 0));
      await slider.focus();
      await page.keyboard.press('Home');
      await shows(plan.curve[0]);
      await page.keyboard.press('ArrowRight');
      await shows(plan.curve[1]);
      await page.keyboard.press('End');
      await shows(plan.curve.at(-1));
      assert.equal(asked, 0);
      await findNoViolation(page, 'suffixes');
      await shot(page, 'advisor-suffixes');
    });
  });
});

describe('the server', () => {
  let server;
  before(async () => (server = await startServer()));
  after(() => server.stop());

  test('regions, and standbys where the store has servers', async () => {
    const { store } = await load('api/shapes.ts');
    await inTab({}, async (page) => {
      await page.goto(`${server.page}#/server`);
      const places = page.getByRole('region', { name: 'Regions and standbys' });
      await places.getByText('Local, reads and writes').waitFor();
      await places.getByText('The memory store is part of this process').waitFor();
      await page.getByText('Nothing is running.').waitFor();

      // What a server on PostgreSQL answers; the test of a failover holds the real one against this shape.
      const answer = {
        store: 'postgres',
        nodes: [
          { name: 'db-1:5432', partitions: [1, 2], shards: 0, tableBytes: 5_000_000, indexBytes: 1_000_000, standbys: [{ name: 'db-2', state: 'streaming/sync', behindBytes: 2048, behindMilliseconds: 12 }] },
          { name: 'db-3:5432', partitions: [], shards: 0, tableBytes: 0, indexBytes: 0, standbys: [], failure: 'connection refused' },
        ],
      };
      assert.deepEqual(store.check(answer, 'store'), []);
      await page.route('**/_orrery/store', (route) => route.fulfill({ json: answer }));
      await page.reload();
      await places.getByRole('row', { name: /db-2 streaming\/sync 2\.0 KB, 12 ms/ }).waitFor();
      await places.getByText('Unreachable: connection refused').waitFor();
      await findNoViolation(page, 'standbys');
      await shot(page, 'server-standbys');
    });
  });

  test('the first paint needs little, and how long it takes is said', async (t) => {
    const paints = [];
    for (let round = 0; round < 5; round++) {
      await inTab({}, async (page) => {
        await page.goto(server.page);
        await page.getByRole('heading', { name: 'A server with nothing in it yet' }).waitFor();
        const seen = await page.evaluate(() => ({
          paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0,
          bytes: performance.getEntriesByType('resource').reduce((sum, entry) => sum + (entry.name.includes('/_explorer/') ? entry.encodedBodySize : 0), 0),
        }));
        assert.ok(seen.bytes < 200_000, `${seen.bytes} bytes before anything is opened`);
        paints.push(seen.paint);
      });
    }
    t.diagnostic(`first paint after ${paints.map((ms) => Math.round(ms)).join(', ')} ms`);
    assert.ok(paints.every((ms) => ms > 0));
  });

  test('the palette creates, opens and changes the theme', async () => {
    await makeContainer(server, 'near', ORDERS, 400);
    await inTab({}, async (page) => {
      await page.goto(server.page);
      await page.getByRole('heading', { name: 'What is here' }).waitFor();
      const pick = async (letters, option) => {
        await page.keyboard.press('Control+k');
        await page.getByRole('combobox', { name: 'Go to a container' }).fill(letters);
        await page.getByRole('option', { name: option }).first().waitFor();
        await page.keyboard.press('Enter');
      };
      await pick('dark', /Dark theme/);
      await page.locator('html[data-theme="dark"]').waitFor();
      await pick('near orders', /orders.*near/);
      await page.waitForURL(/near\/orders\/items/);
      await pick('show part', /Show partitions/);
      await page.waitForURL(/near\/orders\/partitions/);
      await pick('new cont', /New container/);
      await page.getByRole('dialog').getByLabel('Container name').waitFor();
      await page.keyboard.press('Escape');
      await pick('server', /^Server/);
      await page.waitForURL(/#\/server/);
      await page.keyboard.press('Control+k');
      await page.getByRole('combobox', { name: 'Go to a container' }).fill('qqqq');
      await page.getByText('Nothing is called that.').waitFor();
    });
  });
});
