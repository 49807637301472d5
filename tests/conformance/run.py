#!/usr/bin/env python3
"""Runs the official SDKs' own suites, unmodified, against a built server, and compares what fails with what is known to.

Nothing is fetched: the SDKs' repositories, and what their suites need, must already be in the folder that is named
(README.md says how to prepare it). Every suite has the emulators' address built in, so ports 8081 and 8903 must be free.

The result of a test is compared with `expected/<sdk>.txt`, which lists known failures with their reasons, one a line:
the test's name, two or more spaces, the reason. A name may end with `*`. A test that fails and is not listed, or that is
listed and passes, is reported and makes the run fail.
"""

import argparse
import fnmatch
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
# The second stands for the service's other gateway, which some suites compare with the first.
PORTS = (8081, 8903)
KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
CERTIFICATES = "certificates.pem"
PASSED, FAILED = "passed", "failed"


class Unprepared(Exception):
    """The folder lacks what a suite needs."""


def run_tool(command, folder, environment, log):
    """Runs a suite. Its exit code says nothing that its results do not."""
    with open(log, "w", encoding="utf-8") as output:
        subprocess.run(
            command, cwd=folder, env={**os.environ, **environment}, stdout=output, stderr=subprocess.STDOUT, check=False
        )


def go(root, work):
    folder = root / "azure-sdk-for-go/sdk/data/azcosmos"
    sources = sorted(folder.glob("emulator_*_test.go"))
    if not sources:
        raise Unprepared(f"{folder} has no emulator_*_test.go")
    names = [name for source in sources for name in re.findall(r"^func (Test\w+)", source.read_text(), re.M)]
    # One package, so that the events of all tests are in one stream.
    command = ["go", "test", "-json", "-count=1", "-timeout=30m", "-run", f"^({'|'.join(names)})$", "."]
    environment = {"EMULATOR": "true", "GOPROXY": "off", "GOFLAGS": "-mod=mod"}
    environment["SSL_CERT_FILE"] = str(work / CERTIFICATES)
    run_tool(command, folder, environment, work / "go.log")
    results = {}
    for line in (work / "go.log").read_text().splitlines():
        event = json.loads(line) if line.startswith("{") else {}
        if event.get("Test") and event["Action"] in ("pass", "fail"):
            results[event["Test"]] = PASSED if event["Action"] == "pass" else FAILED
    return results


def junit(files):
    """Results in the form that JUnit made common."""
    results = {}
    for file in files:
        for case in xml.etree.ElementTree.parse(file).iter("testcase"):
            if case.find("skipped") is not None:
                continue
            name = f"{case.get('classname', '')}::{case.get('name', '')}".strip(":")
            failed = case.find("failure") is not None or case.find("error") is not None
            # A test that ran twice has failed if it did once.
            if failed or name not in results:
                results[name] = FAILED if failed else PASSED
    return results


def python(root, work):
    folder = root / "azure-sdk-for-python/sdk/cosmos/azure-cosmos"
    interpreter = root / "azure-sdk-for-python/.venv/bin/python"
    if not interpreter.exists():
        raise Unprepared(f"there is no {interpreter}")
    report = work / "python.xml"
    command = [str(interpreter), "-m", "pytest", "tests", "-m", "cosmosEmulator or cosmosQuery or cosmosLong"]
    # Other forms of traceback parse the sources again, which ends Python 3.11 inside deep recursion.
    command.append("--tb=native")
    command += ["-p", "no:cacheprovider", "-q", f"--junitxml={report}"]
    run_tool(command, folder, {"PYTHONDONTWRITEBYTECODE": "1"}, work / "python.log")
    return junit([report] if report.exists() else [])


def javascript(root, work):
    folder = root / "azure-sdk-for-js/sdk/cosmosdb/cosmos"
    if not (folder / "node_modules").exists():
        raise Unprepared(f"there is no {folder / 'node_modules'}")
    report = work / "javascript.xml"
    command = ["npx", "--no-install", "vitest", "run", "-c", "vitest.int.config.ts"]
    command += ["--reporter=junit", f"--outputFile={report}"]
    run_tool(command, folder, {"NODE_OPTIONS": "--dns-result-order=ipv4first"}, work / "javascript.log")
    return junit([report] if report.exists() else [])


def java(root, work):
    folder = root / "azure-sdk-for-java/sdk/cosmos/azure-cosmos-tests"
    if not folder.exists():
        raise Unprepared(f"there is no {folder}")
    settings = [f"-DACCOUNT_HOST=https://localhost:{PORTS[0]}/", f"-DACCOUNT_KEY={KEY}"]
    settings += ["-DCOSMOS.EMULATOR_SERVER_CERTIFICATE_VALIDATION_DISABLED=true"]
    command = ["mvn", "--offline", "--batch-mode", "-Pemulator", "verify", *settings]
    run_tool(command, folder, {}, work / "java.log")
    return junit(sorted(folder.glob("target/*-reports/TEST-*.xml")))


def rust(root, work):
    folder = root / "azure-sdk-for-rust/sdk/cosmos/azure_data_cosmos"
    if not folder.exists():
        raise Unprepared(f"there is no {folder}")
    command = ["cargo", "test", "--offline", "--all-features", "--test", "emulator", "--test", "binary_encoding"]
    environment = {
        "AZURE_COSMOS_CONNECTION_STRING": "emulator",
        "AZURE_COSMOS_TEST_MODE": "required",
        "AZURE_COSMOS_ALLOW_INVALID_CERT": "true",
        "RUSTFLAGS": '--cfg test_category="emulator"',
    }
    run_tool([*command, "--", "--test-threads=1"], folder, environment, work / "rust.log")
    found = re.findall(r"^test (\S+) .*?\.\.\. (ok|FAILED)$", (work / "rust.log").read_text(), re.M)
    return {name: PASSED if outcome == "ok" else FAILED for name, outcome in found}


SUITES = {"python": python, "javascript": javascript, "java": java, "go": go, "rust": rust}


def start_servers(binary, flags, work):
    """One server a port, each on its own, with default flags but for the store."""
    servers = []
    for port in PORTS:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                sys.exit(f"port {port} is in use; the suites have it built in")
        log = open(work / f"server-{port}.log", "w", encoding="utf-8")
        command = [binary, "serve", "--listen", f"127.0.0.1:{port}", "--in-memory", *flags]
        servers.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
    deadline = time.monotonic() + 60
    for port, server in zip(PORTS, servers):
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=1).close()
                break
            except OSError:
                if server.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"the server did not start; see {work}/server-{port}.log")
                time.sleep(0.1)
    with open(work / CERTIFICATES, "wb") as file:
        for port in PORTS:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/_explorer/emulator.pem") as answer:
                file.write(answer.read())
    return servers


def known_failures(sdk):
    """Patterns of names with their reasons, in the order of the file."""
    known = {}
    file = HERE / "expected" / f"{sdk}.txt"
    for line in file.read_text().splitlines() if file.exists() else []:
        if line.strip() and not line.startswith("#"):
            name, _, reason = line.strip().partition("  ")
            known[name] = reason.strip()
    return known


def matches(name, pattern):
    # Names hold brackets, which `fnmatch` would take for sets of letters.
    return fnmatch.fnmatchcase(name.replace("[", "("), pattern.replace("[", "("))


def report(sdk, results):
    """Prints what a suite came to. True if it came to what is known."""
    known = known_failures(sdk)
    failed = sorted(name for name, outcome in results.items() if outcome == FAILED)
    reason = {name: next((known[p] for p in known if matches(name, p)), None) for name in failed}
    new = [name for name in failed if reason[name] is None]
    passing = [p for p in known if not any(matches(name, p) for name in failed)]
    print(f"\n{sdk}: {len(results) - len(failed)} passed of {len(results)}")
    for name in failed:
        if reason[name] is not None:
            print(f"  known failure   {name}  {reason[name]}")
    for name in new:
        print(f"  BEGAN TO FAIL   {name}")
    for pattern in passing:
        print(f"  BEGAN TO PASS   {pattern}  (remove it from expected/{sdk}.txt)")
    return not new and not passing


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--orrery", required=True, help="the server binary")
    parser.add_argument("--from", dest="root", required=True, type=pathlib.Path, help="the folder with the SDKs")
    parser.add_argument("--keep", type=pathlib.Path, help="a folder for logs and reports [default: a temporary one]")
    parser.add_argument("--flag", action="append", default=[], help="a further flag of the server; can be repeated")
    parser.add_argument("sdks", nargs="*", help=f"which suites: {', '.join(SUITES)} [default: all that are there]")
    arguments = parser.parse_args()
    if not arguments.root.is_dir():
        sys.exit(f"{arguments.root} is not a folder; see tests/conformance/README.md")
    unknown = [sdk for sdk in arguments.sdks if sdk not in SUITES]
    if unknown:
        sys.exit(f"there is no suite {unknown[0]}; there are {', '.join(SUITES)}")
    work = arguments.keep or pathlib.Path(tempfile.mkdtemp(prefix="conformance-"))
    work.mkdir(parents=True, exist_ok=True)
    as_known, ran = True, 0
    for sdk in arguments.sdks or SUITES:
        servers = start_servers(arguments.orrery, arguments.flag, work)
        try:
            results = SUITES[sdk](arguments.root.resolve(), work)
        except Unprepared as problem:
            if arguments.sdks:
                sys.exit(f"{sdk} is not prepared: {problem}; see tests/conformance/README.md")
            print(f"\n{sdk}: skipped, {problem}")
            continue
        finally:
            for server in servers:
                server.terminate()
            for server in servers:
                server.wait()
        if not results:
            sys.exit(f"{sdk}: the suite did not run; see {work}/{sdk}.log")
        ran += 1
        as_known &= report(sdk, results)
    print(f"\nlogs and reports: {work}")
    sys.exit(0 if ran and as_known else 1)


if __name__ == "__main__":
    main()
