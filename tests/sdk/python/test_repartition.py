"""A container gets another partition key while a client goes on with it: the client sees no error."""

import threading
import time

import orrery_server
import pytest
from azure.cosmos import CosmosClient, PartitionKey
from conftest import EMULATOR_KEY, unique

ITEMS = 400


@pytest.fixture
def place():
    server = orrery_server.start(["--in-memory", "--partitions-at-creation", "2"])
    with CosmosClient(server.endpoint, EMULATOR_KEY) as client:
        database = client.create_database(unique("db"))
        container = database.create_container(unique("c"), PartitionKey(path="/tenant"))
        for number in range(ITEMS):
            container.create_item(item(number, 0))
        yield server, database, container
    server.stop()


def item(number, version):
    return {"id": str(number), "tenant": f"t{number % 7}", "customer": f"c{number % 50}", "version": version}


class Worker(threading.Thread):
    """Does something over and over, and keeps the errors."""

    def __init__(self, work):
        super().__init__()
        self._work = work
        self._stop_now = threading.Event()
        self.rounds, self.errors = 0, []

    def run(self):
        while not self._stop_now.is_set():
            try:
                self._work(self.rounds)
            except Exception as error:  # Whatever it is, the application would have seen it.
                self.errors.append(error)
            self.rounds += 1

    def finish(self):
        self._stop_now.set()
        self.join()


def test_live_clients_see_no_error_at_the_switch(place):
    server, database, container = place
    written = {}

    # A client each: one that is shared by threads drops what it knows of a container while another thread's retry needs
    # it, whatever the server answers.
    def own_container():
        client = CosmosClient(server.endpoint, EMULATOR_KEY)
        return client.get_database_client(database.id).get_container_client(container.id)

    writing, querying = own_container(), own_container()

    def write(round_number):
        number = round_number % ITEMS
        writing.upsert_item(item(number, round_number))
        written[number] = round_number

    def query(_):
        # One page: a position in the former container means nothing in the new one.
        options = {"enable_cross_partition_query": True, "max_item_count": 2 * ITEMS}
        rows = querying.query_items("SELECT VALUE c.id FROM c", **options)
        assert len(set(rows)) == ITEMS

    workers = [Worker(write), Worker(query)]
    for worker in workers:
        worker.start()
    begin = {
        "database": database.id,
        "container": container.id,
        "partitionKey": {"paths": ["/customer"], "kind": "Hash", "version": 2},
    }
    deadline = time.monotonic() + 60
    # Repeating the request reports its progress.
    while (status := orrery_server.control(server, EMULATOR_KEY, "repartition", begin))["phase"] != "done":
        assert status["phase"] != "failed", status
        assert time.monotonic() < deadline, status
    # Some rounds with the new key.
    rounds = [worker.rounds for worker in workers]
    while any(worker.rounds < seen + 20 for worker, seen in zip(workers, rounds)):
        assert time.monotonic() < deadline, [worker.errors for worker in workers]
    for worker in workers:
        worker.finish()
    assert [worker.errors for worker in workers] == [[], []]
    rows = container.query_items("SELECT c.id, c.version FROM c", enable_cross_partition_query=True)
    found = {int(row["id"]): row["version"] for row in rows}
    assert len(found) == ITEMS
    assert {number: found[number] for number in written} == written
