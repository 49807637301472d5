// Measures what the explorer costs: first paint on an idle machine and on one whose cores are all busy, bytes, and the
// server's processor time while live views are open. Prints a table; nothing is judged, because the figures depend on the machine. `make bench-explorer` runs it on a release build.
import { spawn } from 'node:child_process';
import { readFileSync, readdirSync, statSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ORDERS, makeContainer, openTab, orders, startBrowser, startServer, stopBrowser, writeItems } from './support.mjs';

const assets = join(dirname(fileURLToPath(import.meta.url)), '../embed/assets');
const ROUNDS = 15;
const WATCHED_SECONDS = 30;
/** Linux counts processor time in hundredths of a second for programs. */
const TICKS_PER_SECOND = 100;

const ticks = (pid) => {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1].split(' ');
  return Number(fields[11]) + Number(fields[12]);
};
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const row = (what, value) => console.log(`| ${what} | ${value} |`);

/** The share of a core that a server uses while a view is open, without what it uses anyway. */
async function watching(server, place, ready) {
  const idleFrom = ticks(server.pid);
  await pause(WATCHED_SECONDS * 1000);
  const idle = ticks(server.pid) - idleFrom;
  const tab = await openTab({});
  await tab.page.goto(`${server.page}${place}`);
  await tab.page.locator(ready).first().waitFor({ state: 'attached' });
  // The first answers are larger than the later ones.
  await pause(3000);
  const from = ticks(server.pid);
  await pause(WATCHED_SECONDS * 1000);
  const used = ticks(server.pid) - from;
  await tab.close();
  return `${(((used - idle) / TICKS_PER_SECOND / WATCHED_SECONDS) * 100).toFixed(2)} % of a core`;
}

/** The first paints of new tabs, each with an empty cache, in milliseconds. */
async function firstPaints(server) {
  const paints = [];
  for (let round = 0; round < ROUNDS; round++) {
    const tab = await openTab({});
    await tab.page.goto(server.page);
    await tab.page.getByRole('heading', { level: 1 }).waitFor();
    paints.push(await tab.page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime));
    await tab.close();
  }
  return paints;
}

const summary = (paints) => {
  const sorted = [...paints].sort((a, b) => a - b);
  return `median ${Math.round(sorted[ROUNDS >> 1])} ms, slowest ${Math.round(sorted.at(-1))} ms`;
};

await startBrowser();
console.log('| what | measured |\n|---|---|');
const sizes = readdirSync(assets).map((name) => statSync(join(assets, name)).size);
row('bytes in the binary', `${(sizes.reduce((sum, size) => sum + size, 0) / 1e6).toFixed(2)} MB`);

const server = await startServer('--partitions-at-creation', '4');
const paints = await firstPaints(server);
row(`first paint, empty cache, ${ROUNDS} times`, `${summary(paints)}, in a browser that has just started ${Math.round(paints[0])} ms`);
const loads = Array.from({ length: availableParallelism() }, () => spawn(process.execPath, ['-e', 'for (;;);']));
row(`the same with a busy program on each of ${loads.length} cores`, summary(await firstPaints(server)));
for (const load of loads) load.kill();

await makeContainer(server, 'watched', ORDERS, 40_000);
await writeItems(server, 'watched', 'orders', orders(2000), 'customer');
row('partitions view, 4 partitions', await watching(server, '#/db/watched/orders/partitions', '.strip-part'));
row('server view', await watching(server, '#/server', '.stat'));
await server.stop();

const wide = await startServer('--partitions-at-creation', '1000', '--no-throttle');
await makeContainer(wide, 'wide', ORDERS, 400);
row('partitions view, 1,000 partitions', await watching(wide, '#/db/wide/orders/partitions', '.strip-part'));
await wide.stop();
await stopBrowser();
