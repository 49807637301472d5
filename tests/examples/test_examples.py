"""The programs in examples/ run against a server, and answer as examples/README.md says."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
CACHE = pathlib.Path(os.environ["ORRERY_EXAMPLES_CACHE"])
KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
# Not what a start may take, but when to give up.
PATIENCE_SECONDS = 180


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def send(url, method="GET", body=None):
    request = urllib.request.Request(url, method=method)
    data = None
    if body is not None or method == "POST":
        data = json.dumps(body or {}).encode()
        request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, data=data, timeout=60) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, None


class Examples(unittest.TestCase):
    def setUp(self):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.addCleanup(self.log.close)
        self.orrery = subprocess.Popen(
            [os.environ["ORRERY_BIN"], "serve", "--in-memory", "--listen", "127.0.0.1:0", "--output", "json"],
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        self.addCleanup(self.end, self.orrery)
        self.addCleanup(self.orrery.stdout.close)
        self.port = json.loads(self.orrery.stdout.readline())["port"]

    @staticmethod
    def end(process):
        process.terminate()
        process.wait()

    def check(self, command, directory, scheme="http", host="127.0.0.1", **variables):
        """Starts a program and makes the requests of examples/README.md."""
        port = free_port()
        environment = os.environ | variables
        environment |= {"COSMOS_ENDPOINT": f"{scheme}://{host}:{self.port}/", "COSMOS_KEY": KEY, "PORT": str(port)}
        program = subprocess.Popen(command, cwd=directory, env=environment, stdout=self.log, stderr=self.log)
        self.addCleanup(self.end, program)
        base = f"http://127.0.0.1:{port}"
        end = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                if send(f"{base}/health")[0] == 200:
                    break
            except OSError:
                pass
            if program.poll() is not None or time.monotonic() > end:
                self.log.seek(0)
                self.fail(f"{command} did not start: {self.log.read()[-3000:]}")
            time.sleep(0.05)
        orders = f"{base}/customers/ada/orders"
        order = {"id": "1", "customer": "ada", "total": 42}
        status, created = send(f"{base}/orders", "POST", order)
        self.assertEqual((status, created["id"], created["status"]), (201, "1", "open"))
        self.assertEqual(send(f"{base}/orders", "POST", order)[0], 409)
        self.assertEqual(send(f"{base}/orders", "POST", order | {"id": "2"})[0], 201)
        self.assertEqual(send(f"{base}/orders", "POST", order | {"customer": "grace"})[0], 201)
        self.assertEqual(send(f"{orders}/1")[1]["total"], 42)
        self.assertEqual(send(f"{orders}/9")[0], 404)
        self.assertEqual([found["id"] for found in send(orders)[1]], ["2", "1"])
        self.assertEqual(send(f"{orders}/1/ship", "POST")[0], 200)
        self.assertEqual(send(f"{orders}/1")[1]["status"], "shipped")
        self.assertEqual(send(f"{orders}/9/ship", "POST")[0], 404)

    def test_fastapi(self):
        self.check([sys.executable, "app.py"], EXAMPLES / "fastapi")

    def test_node(self):
        # Packages of ES modules are looked for beside the program.
        directory = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, directory)
        shutil.copy(EXAMPLES / "node" / "server.js", directory)
        shutil.copy(EXAMPLES / "node" / "package.json", directory)
        (directory / "node_modules").symlink_to(pathlib.Path(os.environ["NODE_PATH"]))
        self.check(["node", "server.js"], directory)

    def test_go(self):
        program = CACHE / "go-orders"
        subprocess.run(["go", "build", "-o", program, "."], cwd=EXAMPLES / "go", check=True)
        self.check([program], EXAMPLES / "go")

    def test_spring_boot(self):
        build = CACHE / "spring-boot"
        subprocess.run(
            ["mvn", "-B", "-ntp", "-q", f"-Dorders.build={build}", "package"], cwd=EXAMPLES / "spring-boot", check=True
        )
        trust = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, trust)
        url = f"http://127.0.0.1:{self.port}/_explorer/emulator.pem"
        urllib.request.urlretrieve(url, trust / "orrery.pem")
        keytool = "keytool -importcert -noprompt -alias orrery -file orrery.pem -keystore orrery.p12 -storetype PKCS12"
        subprocess.run([*keytool.split(), "-storepass", "changeit"], cwd=trust, check=True, stderr=subprocess.DEVNULL)
        options = f"-Xmx256m -Djavax.net.ssl.trustStore={trust}/orrery.p12 -Djavax.net.ssl.trustStorePassword=changeit"
        jar = build / "orders-0.jar"
        self.check(["java", *options.split(), "-jar", jar], EXAMPLES / "spring-boot", "https", "localhost")

    @unittest.skipUnless(shutil.which("dotnet"), "the .NET SDK is not installed: examples/dotnet is not run")
    def test_dotnet(self):
        directory = CACHE / "dotnet"
        directory.mkdir(exist_ok=True)
        for file in ("orders.csproj", "Program.cs"):
            shutil.copy(EXAMPLES / "dotnet" / file, directory)
        self.check(["dotnet", "run"], directory, "https", "localhost")

    def test_notebook(self):
        import nbclient
        import nbformat

        notebook = nbformat.read(EXAMPLES / "notebook" / "choose-a-key.ipynb", as_version=4)
        tools = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, tools)
        (tools / "orrery").symlink_to(pathlib.Path(os.environ["ORRERY_BIN"]).resolve())
        before = dict(os.environ)
        self.addCleanup(os.environ.update, before)
        os.environ["PATH"] = f"{tools}:{os.environ['PATH']}"
        os.environ |= {"COSMOS_ENDPOINT": f"http://127.0.0.1:{self.port}/", "COSMOS_KEY": KEY}
        nbclient.NotebookClient(notebook, timeout=PATIENCE_SECONDS, kernel_name="python3").execute(cwd=tools)
        printed = "".join(
            output.get("text", "") for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs
        )
        self.assertIn("The key is /customer", printed)


if __name__ == "__main__":
    unittest.main()
