"""Starts the server under test on a free loopback port and stops it again.

The suite never uses a fixed port. The port is found by binding to port 0; should another process
take it before the server does, the start is tried again with another one.
"""

import base64
import email.utils
import hashlib
import hmac
import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid

START_SECONDS_MAX = 30
START_ATTEMPTS = 3


class Server:
    """A running server; `endpoint` is its plain HTTP address, `tls_endpoint` the same port over TLS."""

    def __init__(self, endpoint, process=None, log=None):
        self.endpoint = endpoint.rstrip("/") + "/"
        self.tls_endpoint = self.endpoint.replace("http://", "https://", 1)
        self._process = process
        self._log = log

    @property
    def address(self):
        return self.endpoint.removeprefix("http://").rstrip("/")

    def kill(self):
        """Ends the process without giving it a chance to tidy up."""
        self._process.kill()
        self._process.wait()

    def stop(self):
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def start(arguments=("--in-memory",)):
    """The server named by ORRERY_ENDPOINT, or a new process of ORRERY_BIN."""
    running = os.environ.get("ORRERY_ENDPOINT")
    if running:
        return Server(running)
    arguments = _on_store(arguments)
    failure = None
    for _ in range(START_ATTEMPTS):
        try:
            return start_at(f"127.0.0.1:{_free_port()}", arguments)
        except RuntimeError as error:
            failure = error
    raise failure


def _on_store(arguments):
    """Where ORRERY_TEST_STORE_URL names a PostgreSQL server, a schema of its own there instead of memory."""
    url = os.environ.get("ORRERY_TEST_STORE_URL")
    if not url or "--in-memory" not in arguments:
        return arguments
    store = f"{url}{'&' if '?' in url else '?'}schema=py_{uuid.uuid4().hex[:16]}"
    return tuple(part for part in arguments if part != "--in-memory") + ("--store", store)


def start_at(address, arguments):
    """A new process of ORRERY_BIN at this very address."""
    log = tempfile.NamedTemporaryFile(mode="w+", prefix="orrery-", suffix=".log", delete=False)
    command = [os.environ["ORRERY_BIN"], "serve", "--listen", address, *arguments]
    # Suites are not to wait for throughput; a test about it passes `--no-throttle=false`.
    environment = {**os.environ, "ORRERY_NO_THROTTLE": "true"}
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, env=environment
    )
    server = Server(f"http://{address}/", process, log.name)
    deadline = time.monotonic() + START_SECONDS_MAX
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        if _healthy(server.endpoint):
            return server
        time.sleep(0.05)
    server.stop()
    with open(log.name, encoding="utf-8", errors="replace") as text:
        raise RuntimeError(f"the server did not become healthy at {address}:\n{text.read()[-4000:]}")


def control(server, key, path, body=None, method=None):
    """Asks the server's own surface, below `_orrery/`; with a body, posts it."""
    method = method or ("GET" if body is None else "POST")
    date = email.utils.formatdate(usegmt=True)
    # As with every path: an odd number of segments ends with a kind, an even one with a name.
    *owner, last = f"_orrery/{path}".split("/")
    kind, link = (last, "/".join(owner)) if len(owner) % 2 == 0 else (owner[-1], f"_orrery/{path}")
    text = f"{method.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
    digest = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
    signature = urllib.parse.quote("type=master&ver=1.0&sig=" + base64.b64encode(digest).decode(), safe="")
    request = urllib.request.Request(
        f"{server.endpoint}_orrery/{path}",
        data=None if body is None else json.dumps(body).encode(),
        method=method,
        headers={"authorization": signature, "x-ms-date": date, "x-ms-version": "2018-12-31"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def _healthy(endpoint):
    try:
        with urllib.request.urlopen(endpoint + "_orrery/health", timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def _free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
