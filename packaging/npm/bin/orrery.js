#!/usr/bin/env node
// Runs the binary for this machine, with the same arguments, signals and exit code.
"use strict";

const { spawn } = require("node:child_process");
const fs = require("node:fs");
const path = require("node:path");

const binary = path.join(__dirname, "..", "native", `${process.platform}-${process.arch}`, "orrery");
if (!fs.existsSync(binary)) {
  console.error(`orrery: this package has no binary for ${process.platform} on ${process.arch}`);
  process.exit(1);
}
const child = spawn(binary, process.argv.slice(2), { stdio: "inherit" });
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) {
  process.on(signal, () => child.kill(signal));
}
child.on("error", (error) => {
  console.error(`orrery: ${error.message}`);
  process.exit(1);
});
child.on("exit", (code, signal) => {
  if (signal === null) {
    process.exit(code);
  }
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
});
