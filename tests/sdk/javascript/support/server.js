"use strict";
/**
 * Starts the server under test on a free loopback port and stops it again.
 *
 * No fixed port: one is found by listening on port 0; should another process take it before the
 * server does, the start is tried again with another one.
 */

const { spawn } = require("node:child_process");
const crypto = require("node:crypto");
const fs = require("node:fs");
const net = require("node:net");
const os = require("node:os");
const path = require("node:path");
const { setTimeout: sleep } = require("node:timers/promises");

const START_MS_MAX = 30_000;
const START_ATTEMPTS = 3;

async function start(serverArguments = ["--in-memory"]) {
  let failure;
  for (let attempt = 0; attempt < START_ATTEMPTS; attempt++) {
    try {
      return await startOnce(onStore(serverArguments));
    } catch (error) {
      failure = error;
    }
  }
  throw failure;
}

/** Where ORRERY_TEST_STORE_URL names a PostgreSQL server, a schema of its own there instead of memory. */
function onStore(serverArguments) {
  const url = process.env.ORRERY_TEST_STORE_URL;
  if (!url || !serverArguments.includes("--in-memory")) return serverArguments;
  const store = `${url}${url.includes("?") ? "&" : "?"}schema=js_${crypto.randomBytes(8).toString("hex")}`;
  return [...serverArguments.filter((argument) => argument !== "--in-memory"), "--store", store];
}

async function startOnce(serverArguments) {
  const address = `127.0.0.1:${await freePort()}`;
  const endpoint = `http://${address}/`;
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), "orrery-"));
  const logPath = path.join(directory, "server.log");
  const log = fs.openSync(logPath, "w");
  const child = spawn(process.env.ORRERY_BIN, ["serve", "--listen", address, ...serverArguments], {
    stdio: ["ignore", log, log],
    // Suites are not to wait for throughput; a test about it passes `--no-throttle=false`.
    env: { ...process.env, ORRERY_NO_THROTTLE: "true" },
  });
  fs.closeSync(log);
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const stop = async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill("SIGTERM");
    const timer = setTimeout(() => child.kill("SIGKILL"), 10_000);
    await ended;
    clearTimeout(timer);
  };
  const deadline = Date.now() + START_MS_MAX;
  while (Date.now() < deadline && child.exitCode === null) {
    if (await healthy(endpoint)) return { endpoint, stop };
    await sleep(50);
  }
  await stop();
  const output = fs.readFileSync(logPath, "utf8").slice(-4000);
  throw new Error(`the server did not become healthy at ${address}:\n${output}`);
}

async function healthy(endpoint) {
  try {
    const answer = await fetch(`${endpoint}_orrery/health`, { signal: AbortSignal.timeout(2000) });
    return answer.status === 200;
  } catch {
    return false;
  }
}

function freePort() {
  return new Promise((resolve, reject) => {
    const probe = net.createServer();
    probe.once("error", reject);
    probe.listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => resolve(port));
    });
  });
}

module.exports = { start };
