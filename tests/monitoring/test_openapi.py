"""docs/openapi.yaml describes the admin API: schemathesis sends what it allows, and much that it does not, and compares
every answer with it."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCHEMA = ROOT / "docs" / "openapi.yaml"
KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,ignored_auth"


class OpenApi(unittest.TestCase):
    def test_the_server_answers_as_described(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        options = ["--data", directory.name, "--containers", "shop/orders:/customer", "--no-direct"]
        server = subprocess.Popen(
            [os.environ["ORRERY_BIN"], "serve", "--listen", "127.0.0.1:0", "--output", "json", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        endpoint = json.loads(server.stdout.readline())["endpoint"].rstrip("/")
        command = [str(pathlib.Path(sys.executable).parent / "schemathesis"), "run", str(SCHEMA), "--url", endpoint]
        command += ["--checks", CHECKS, "--phases", "examples,coverage,fuzzing", "--max-examples", "15", "--seed", "1"]
        command += ["--no-color", "--suppress-health-check", "all", "--warnings", "off", "--request-timeout", "60"]
        hooks = {"SCHEMATHESIS_HOOKS": "signed_requests", "PYTHONPATH": str(pathlib.Path(__file__).parent)}
        with tempfile.TemporaryDirectory() as scratch:
            result = subprocess.run(
                command,
                cwd=scratch,
                env=os.environ | hooks | {"ORRERY_KEY": KEY},
                capture_output=True,
                text=True,
            )
        self.assertEqual(result.returncode, 0, result.stdout[-6000:] + result.stderr[-1000:])
        self.assertIsNone(server.poll(), "the server has ended")

    def test_it_describes_what_the_document_lists(self):
        described = set(yaml.safe_load(SCHEMA.read_text())["paths"])
        listed = re.findall(r"`(?:(?:GET|POST|DELETE),? ?`?,? ?`?)*(/[a-z_/-]+)", (ROOT / "docs" / "admin-api.md").read_text())
        missing = {path.rstrip("/") for path in listed if path.startswith(("/_orrery", "/ready", "/status", "/alive"))} - described
        self.assertEqual(missing, set())


if __name__ == "__main__":
    unittest.main()
