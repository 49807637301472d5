"use strict";
/** Starts one server, runs the test files against it with node's own runner, stops the server. */

const { spawn } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");
const server = require("./server");

async function main() {
  const wanted = process.argv.slice(2);
  const directory = path.join(__dirname, "..", "suite");
  const files = fs
    .readdirSync(directory)
    .filter((name) => name.endsWith(".test.js"))
    .map((name) => path.join(directory, name));

  const running = process.env.ORRERY_ENDPOINT
    ? { endpoint: process.env.ORRERY_ENDPOINT, stop: async () => {} }
    : await server.start();
  try {
    const chosen = wanted.some((argument) => argument.startsWith("--test-reporter"));
    const reporter = chosen ? [] : ["--test-reporter=spec"];
    const child = spawn(process.execPath, ["--test", ...reporter, ...wanted, ...files], {
      stdio: "inherit",
      env: { ...process.env, ORRERY_ENDPOINT: running.endpoint },
    });
    process.exitCode = await new Promise((resolve) => child.once("exit", (code) => resolve(code ?? 1)));
  } finally {
    await running.stop();
  }
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
