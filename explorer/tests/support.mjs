// Servers, a browser and a small client for the tests of the page.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gunzipSync } from 'node:zlib';
import { chromium } from 'playwright-core';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const here = dirname(fileURLToPath(import.meta.url));
const BINARY = process.env.ORRERY_BIN;
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
export const KEY = 'C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw==';
/** How long anything may take to appear: long, because the machine may be busy with builds. */
const TIMEOUT_MS = 60_000;
export const SHOTS = process.env.ORRERY_SHOTS ?? null;

/** A server on a port of its own, in memory, that ends with the test. */
export async function startServer(...extra) {
  if (!BINARY) throw new Error('set ORRERY_BIN to the server binary');
  const child = spawn(BINARY, ['serve', '--listen', '127.0.0.1:0', '--in-memory', '--output', 'json', ...extra], { stdio: ['ignore', 'pipe', 'pipe'] });
  const log = [];
  child.stderr.on('data', (part) => log.push(String(part)));
  const banner = await new Promise((resolve, reject) => {
    let text = '';
    child.stdout.on('data', (part) => {
      text += part;
      const end = text.indexOf('\n');
      if (end >= 0) resolve(JSON.parse(text.slice(0, end)));
    });
    child.on('exit', (code) => reject(new Error(`the server ended with ${code}: ${log.join('')}`)));
  });
  const origin = `http://localhost:${banner.port}`;
  return {
    origin,
    page: `${origin}/_explorer/`,
    key: KEY,
    pid: child.pid,
    stop: () =>
      new Promise((resolve) => {
        child.on('exit', resolve);
        child.kill('SIGTERM');
      }),
  };
}

/** One signed request, as any client sends it. */
export async function request(server, method, path, body, headers = {}, key = server.key) {
  const date = new Date().toUTCString();
  let segments = path.split('?')[0].split('/').filter(Boolean).map(decodeURIComponent);
  // An operation on a container is signed as a request to the container.
  if (segments.at(-2) === 'operations') segments = segments.slice(0, -2);
  const named = segments.length % 2 === 0;
  const type = (named ? segments.at(-2) : segments.at(-1)) ?? '';
  const owner = named ? segments : segments.slice(0, -1);
  const link = segments[0] === 'offers' ? (owner.at(-1) ?? '').toLowerCase() : owner.join('/');
  const text = `${method.toLowerCase()}\n${type.toLowerCase()}\n${link}\n${date.toLowerCase()}\n\n`;
  const signature = createHmac('sha256', Buffer.from(key, 'base64')).update(text).digest('base64');
  const response = await fetch(server.origin + path, {
    method,
    headers: {
      'x-ms-date': date,
      'x-ms-version': '2020-07-15',
      'content-type': 'application/json',
      authorization: encodeURIComponent(`type=master&ver=1.0&sig=${signature}`),
      ...headers,
    },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const answer = await response.text();
  return { status: response.status, headers: response.headers, body: answer === '' ? null : JSON.parse(answer) };
}

export async function makeContainer(server, database, definition, throughput = 400) {
  await request(server, 'POST', '/dbs', { id: database });
  const made = await request(server, 'POST', `/dbs/${database}/colls`, definition, { 'x-ms-offer-throughput': String(throughput) });
  if (made.status !== 201) throw new Error(JSON.stringify(made));
  return made.body;
}

/** Writes items in bulk, under the given property as the partition key. */
export async function writeItems(server, database, container, items, key) {
  const headers = { 'x-ms-cosmos-is-batch-request': 'true', 'x-ms-cosmos-batch-atomic': 'false', 'x-ms-cosmos-batch-continue-on-error': 'true' };
  let next = 0;
  const lane = async () => {
    while (next < items.length) {
      let left = items.slice(next, (next += 100));
      // What is throttled is sent again, as clients do.
      while (left.length > 0) {
        const operations = left.map((item) => ({ operationType: 'Upsert', partitionKey: JSON.stringify([item[key]]), resourceBody: item }));
        const answer = await request(server, 'POST', `/dbs/${database}/colls/${container}/docs`, operations, headers);
        const failed = answer.body.find((result) => result.statusCode >= 400 && result.statusCode !== 429);
        if (failed) throw new Error(JSON.stringify(failed));
        left = left.filter((_, at) => answer.body[at].statusCode === 429);
      }
    }
  };
  await Promise.all(Array.from({ length: 6 }, lane));
}

let browser = null;

export async function startBrowser() {
  browser = await chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', '--disable-gpu', '--font-render-hinting=none'] });
  return browser;
}

export const stopBrowser = () => browser?.close();

/** A tab of its own. What the browser complains about fails the test: policy violations too. */
export async function openTab({ width = 1440, height = 900, dark = false, allow = [] } = {}) {
  const context = await browser.newContext({ viewport: { width, height }, colorScheme: dark ? 'dark' : 'light', reducedMotion: 'reduce' });
  const page = await context.newPage();
  const complaints = [];
  page.on('console', (message) => {
    const text = message.text();
    // Answers that are errors are the page's to show, and are logged by the browser all the same. Violations of the
    // policy are told apart below.
    if (message.type() === 'error' && !/Failed to load resource|Content Security Policy/.test(text)) complaints.push(text);
  });
  await page.exposeFunction('reportViolation', (text) => complaints.push(text));
  await page.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', (event) => {
      const at = event.composedPath()[0];
      // Chromium itself writes styles into lines of text that are typed over; the policy takes them off again.
      const own = event.effectiveDirective === 'style-src-attr' && at instanceof Element && at.closest('.cm-content');
      if (!own) window.reportViolation(`policy: ${event.effectiveDirective} ${event.blockedURI} ${at.nodeName} ${event.sourceFile}:${event.lineNumber}`);
    });
  });
  page.on('pageerror', (error) => complaints.push(String(error)));
  if (process.env.ORRERY_EMBED) await fromDisk(page);
  page.setDefaultTimeout(TIMEOUT_MS);
  return {
    page,
    close: async () => {
      await context.close();
      const unexpected = complaints.filter((text) => !allow.some((pattern) => pattern.test(text)));
      if (unexpected.length > 0) throw new Error(`the browser complained: ${unexpected.join('\n')}`);
    },
  };
}

/** While the page is developed: its files from `embed/` instead of those in the binary, under the same policy. */
async function fromDisk(page) {
  const types = { js: 'text/javascript', css: 'text/css', svg: 'image/svg+xml', html: 'text/html' };
  const policy = /const POLICY: &str = "([^;]*;[\s\S]*?)";/.exec(readFileSync(join(here, '../../crates/orrery-gateway/src/explorer.rs'), 'utf8'))[1].replace(/\\\n\s*/g, '');
  await page.route('**/_explorer/**', (route) => {
    const name = new URL(route.request().url()).pathname.replace('/_explorer/', '') || 'index.html';
    const file = join(here, '../embed', name);
    const body = existsSync(file) ? readFileSync(file) : gunzipSync(readFileSync(`${file}.gz`));
    return route.fulfill({ body, contentType: types[name.split('.').at(-1)], headers: { 'content-security-policy': policy } });
  });
}

/** Keeps a picture, if pictures are wanted. */
export async function shot(page, name) {
  if (SHOTS) await page.screenshot({ path: join(SHOTS, `${name}.png`) });
}

/** Runs a test with a tab, and fails if the browser complained. */
export async function inTab(options, work) {
  const tab = await openTab(options);
  try {
    await work(tab.page);
  } catch (error) {
    await shot(tab.page, `failed-${Date.now()}`).catch(() => {});
    await tab.close().catch(() => {});
    throw error;
  }
  await tab.close();
}

export async function findNoViolation(page, what) {
  // The policy of the page holds for scripts of tests too, except for those that come from outside of it.
  await page.evaluate(axe);
  const found = await page.evaluate(async () => {
    const result = await window.axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] });
    return result.violations.map((violation) => `${violation.id}: ${violation.nodes.map((node) => `${node.target.join(' ')} (${node.any.map((check) => check.message).join('; ')})`).slice(0, 4).join(' | ')}`);
  });
  assert.deepEqual(found, [], what);
}

export const orders = (count, from = 0) =>
  Array.from({ length: count }, (_, at) => ({ id: `o${String(from + at).padStart(6, '0')}`, customer: `c${(from + at) % 50}`, city: ['Oslo', 'Lima', 'Seoul'][at % 3], total: (at * 7) % 1000 }));
export const ORDERS = { id: 'orders', partitionKey: { paths: ['/customer'], kind: 'Hash', version: 2 } };
