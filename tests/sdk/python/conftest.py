"""Clients and containers for the suite.

`client` comes in two kinds, synchronous and asynchronous; everything made from it belongs to the
same kind, so each test runs once with either client.
"""

import uuid

import orrery_server
import pytest
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.aio import CosmosClient as AsyncCosmosClient
from blocking import Blocking, Loop

# The key every emulator accepts; the server takes it on loopback only.
EMULATOR_KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="


def unique(prefix="it"):
    return f"{prefix}-{uuid.uuid4().hex}"


class ClientKind:
    """Opens clients of one kind and closes them at the end."""

    def __init__(self, kind):
        self.kind = kind
        self._loop = Loop() if kind == "aio" else None
        self._opened = []

    def open(self, url, credential=EMULATOR_KEY, **options):
        if self.kind == "sync":
            client = CosmosClient(url, credential, **options)
            self._opened.append(client)
            return client
        target = AsyncCosmosClient(url, credential, **options)
        self._loop.run(target.__aenter__())
        self._opened.append(target)
        return Blocking(self._loop, target)

    def close(self):
        for client in self._opened:
            if self.kind == "sync":
                client.__exit__()
            else:
                self._loop.run(client.close())
        if self._loop is not None:
            self._loop.stop()


@pytest.fixture(scope="session")
def server():
    server = orrery_server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def endpoint(server):
    return server.endpoint


@pytest.fixture(scope="session", params=["sync", "aio"])
def clients(request):
    kind = ClientKind(request.param)
    yield kind
    kind.close()


@pytest.fixture(scope="session")
def client(clients, endpoint):
    return clients.open(endpoint)


@pytest.fixture(scope="session")
def database(client):
    name = unique("db")
    database = client.create_database(name)
    yield database
    client.delete_database(name)


@pytest.fixture(scope="session")
def shared_container(database):
    """One container partitioned on `/pk` for tests that keep to their own ids and keys."""
    return database.create_container(unique("shared"), PartitionKey(path="/pk"))


@pytest.fixture
def container(shared_container):
    return shared_container


@pytest.fixture
def new_container(database):
    """Makes containers that are deleted after the test."""
    made = []

    def make(partition_key=None, **options):
        name = options.pop("id", None) or unique("c")
        made.append(name)
        return database.create_container(name, partition_key or PartitionKey(path="/pk"), **options)

    yield make
    for name in made:
        try:
            database.delete_container(name)
        except Exception:  # The test may have deleted it itself.
            pass


@pytest.fixture
def headers():
    """A response hook that remembers the headers of the last answer."""

    class Hook:
        def __init__(self):
            self._headers = {}

        def __call__(self, answer, _body=None):
            self._headers = {name.lower(): value for name, value in answer.items()}

        def __getitem__(self, name):
            return self._headers[name]

    return Hook()
