"""The orrery binary of this package, and servers for tests."""

import json
import os
import subprocess
import sysconfig
from pathlib import Path

__all__ = ["Server", "binary"]


def binary() -> str:
    """The path of the binary. The variable ORRERY_BIN names another one."""
    if os.environ.get("ORRERY_BIN"):
        return os.environ["ORRERY_BIN"]
    for scheme in (sysconfig.get_default_scheme(), "posix_user"):
        found = Path(sysconfig.get_path("scripts", scheme)) / "orrery"
        if found.is_file():
            return str(found)
    raise FileNotFoundError("the orrery binary is not where pip puts scripts: set ORRERY_BIN")


class Server:
    """A server in memory on a free loopback port, until it is closed.

    >>> with Server(containers=["shop/orders:/customer"]) as server:
    ...     client = CosmosClient(server.endpoint, server.key)
    """

    key = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="

    def __init__(self, containers=(), arguments=()):
        command = [binary(), "serve", "--in-memory", "--profile", "emulator", "--listen", "127.0.0.1:0", "--output", "json"]
        for container in containers:
            command += ["--containers", container]
        self._process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"orrery did not start (exit code {self._process.wait()})")
        self.endpoint = json.loads(line)["endpoint"]
        self.connection_string = f"AccountEndpoint={self.endpoint};AccountKey={self.key};"

    def close(self):
        """Stops the server; everything in it is gone."""
        self._process.terminate()
        self._process.wait()
        self._process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
