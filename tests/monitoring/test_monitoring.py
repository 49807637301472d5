"""The metrics of a server under load, and the dashboard and alerts that are made from them.

The files are read by the tools that will read them: both text formats by the Prometheus client's parsers, expressions and
alerts by promtool.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest
import urllib.request

from azure.cosmos import CosmosClient, PartitionKey
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open_metrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain

ROOT = pathlib.Path(__file__).resolve().parents[2]
MONITORING = ROOT / "packaging" / "monitoring"
DASHBOARD = json.loads((MONITORING / "dashboards" / "orrery.json").read_text())
KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
PROMTOOL = shutil.which("promtool")
NAME = re.compile(r"\b(?:orrery|process)_[a-z_]+\b")


def panels():
    for panel in DASHBOARD["panels"]:
        yield from (target["expr"] for target in panel.get("targets", []))


class Monitoring(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        options = ["--data", cls.directory.name, "--listen", "127.0.0.1:0", "--output", "json"]
        cls.server = subprocess.Popen(
            [os.environ["ORRERY_BIN"], "serve", *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        cls.endpoint = json.loads(cls.server.stdout.readline())["endpoint"]
        database = CosmosClient(cls.endpoint, KEY).create_database("d")
        for name in ("a", "b"):
            container = database.create_container(name, PartitionKey("/pk"))
            for number in range(5):
                container.upsert_item({"id": str(number), "pk": "x"})
        cls.plain, cls.plain_type = cls.scrape("text/plain")
        cls.open, cls.open_type = cls.scrape("application/openmetrics-text;version=1.0.0,text/plain;q=0.5")

    @classmethod
    def tearDownClass(cls):
        cls.server.terminate()
        cls.server.wait()
        cls.server.stdout.close()
        cls.directory.cleanup()

    @classmethod
    def scrape(cls, accept):
        request = urllib.request.Request(f"{cls.endpoint}_orrery/metrics", headers={"Accept": accept})
        with urllib.request.urlopen(request) as response:
            return response.read().decode(), response.headers["Content-Type"]

    def samples(self):
        return [sample for family in parse_open_metrics(self.open) for sample in family.samples]

    def test_both_formats_say_the_same(self):
        self.assertEqual(self.plain_type, "text/plain; version=0.0.4; charset=utf-8")
        self.assertEqual(self.open_type, "application/openmetrics-text; version=1.0.0; charset=utf-8")
        plain = {sample.name for family in parse_plain(self.plain) for sample in family.samples}
        self.assertEqual(plain, {sample.name for sample in self.samples()})
        kinds = {family.name: family.type for family in parse_plain(self.plain)}
        self.assertEqual(kinds["orrery_requests"], "counter")
        self.assertEqual(kinds["orrery_request_duration_seconds"], "histogram")
        self.assertNotIn("unknown", kinds.values())

    def test_requests_are_counted_by_container(self):
        requests = {
            (sample.labels["container"], sample.labels["outcome"]): sample.value
            for sample in self.samples()
            if sample.name == "orrery_container_requests_total"
        }
        # Creating the container counts too.
        self.assertEqual(requests["dbs/d/colls/a", "success"], requests["dbs/d/colls/b", "success"])
        self.assertGreaterEqual(requests["dbs/d/colls/a", "success"], 5)

    def test_the_document_lists_every_metric(self):
        listed = set(re.findall(r"^\| `([a-z_]+)` \|", (ROOT / "docs" / "metrics.md").read_text(), re.M))
        exported = {sample.name for sample in self.samples()}
        exported = {re.sub(r"_(bucket|count|sum)$", "", name) for name in exported}
        self.assertEqual(listed, exported)

    def test_dashboard_and_alerts_use_existing_metrics(self):
        exported = {sample.name for sample in self.samples()}
        labels = {name for sample in self.samples() for name in sample.labels} | {"instance", "job", "le"}
        used = " ".join(panels()) + (MONITORING / "alerts.yaml").read_text()
        used += json.dumps(DASHBOARD["templating"])
        self.assertEqual(set(NAME.findall(used)) - exported, set())
        for group in re.findall(r"by \(([^)]*)\)", " ".join(panels())):
            self.assertEqual({label.strip() for label in group.split(",")} - labels, set(), group)

    @unittest.skipUnless(PROMTOOL, "promtool is not installed (Debian package prometheus)")
    def test_promtool_accepts_metrics(self):
        for text in (self.plain,):
            result = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    @unittest.skipUnless(PROMTOOL, "promtool is not installed (Debian package prometheus)")
    def test_promtool_accepts_alerts_and_their_tests_pass(self):
        for command in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts.test.yaml"]):
            result = subprocess.run([PROMTOOL, *command], cwd=MONITORING, capture_output=True, text=True)
            self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        result = subprocess.run(
            [PROMTOOL, "check", "config", "prometheus.yaml"], cwd=MONITORING, capture_output=True, text=True
        )
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    @unittest.skipUnless(PROMTOOL, "promtool is not installed (Debian package prometheus)")
    def test_promtool_parses_the_expressions_of_the_dashboard(self):
        rules = [
            {"record": f"panel:{number}", "expr": expression.replace("$__rate_interval", "5m")}
            for number, expression in enumerate(panels())
        ]
        self.assertGreater(len(rules), 12)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)
            file.flush()
            result = subprocess.run([PROMTOOL, "check", "rules", file.name], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
