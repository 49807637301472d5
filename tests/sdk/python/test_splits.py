"""Partitions split from one to eight while an application goes on: it sees no error, loses nothing,
and sees nothing twice. The same with a server that is killed in the middle of each step: the
application meets refused connections, repeats what it was about, and then finds all it was promised."""

import random
import threading
import time

import orrery_server
import pytest
from azure.core.exceptions import ServiceRequestError, ServiceResponseError
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError, CosmosResourceNotFoundError
from conftest import EMULATOR_KEY, unique

KEYS = 40
FIXED = 150
PARTITIONS = 8


# What an application sees of a server that is gone: never an answer, only that there is none.
NO_ANSWER = (ServiceRequestError, ServiceResponseError)


class OwnServer:
    """A server of its own: splits of a loaded container would slow the others down."""

    def __init__(self, arguments, is_killed):
        self._arguments = arguments
        self.is_killed = is_killed
        self._server = orrery_server.start(arguments)
        self.endpoint = self._server.endpoint

    def kill_and_start(self):
        self._server.kill()
        self._server = orrery_server.start_at(self._server.address, self._arguments)

    def stop(self):
        self._server.stop()


@pytest.fixture(scope="module", params=["memory", "disk", "killed"])
def own_server(request, tmp_path_factory):
    arguments = ["--in-memory"]
    if request.param != "memory":
        arguments = ["--data", str(tmp_path_factory.mktemp("data"))]
    if request.param == "disk":
        arguments += ["--durability", "relaxed:50"]
    server = OwnServer(arguments, request.param == "killed")
    yield server
    server.stop()


class Worker(threading.Thread):
    """Repeats a piece of work until told to stop, and keeps its failure."""

    def __init__(self, work, outlives_kills):
        super().__init__(daemon=True)
        self._work = work
        self._outlives_kills = outlives_kills
        self._stop_asked = threading.Event()
        self.failure = None
        self.rounds = 0

    def run(self):
        try:
            while not self._stop_asked.is_set():
                self._finish_round()
                self.rounds += 1
        except BaseException as failure:  # Reported by the test.
            self.failure = failure

    def _finish_round(self):
        # A round whose fate is unknown is repeated until it is known.
        deadline = time.monotonic() + 60
        while True:
            try:
                return self._work(self.rounds)
            except NO_ANSWER:
                if not self._outlives_kills or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def finish(self):
        self._stop_asked.set()
        self.join(timeout=60)
        assert not self.is_alive(), "a worker hangs"
        if self.failure is not None:
            raise self.failure


def wait_until(condition, seconds=120):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it does not come to pass"
        time.sleep(0.02)


def scale(server, container, throughput):
    """Replaces the throughput, upon which partitions split; a server that is to be killed is, meanwhile."""
    if not server.is_killed:
        container.replace_throughput(throughput)
        return
    replace = lambda: attempt(lambda: container.replace_throughput(throughput))
    scaler = threading.Thread(target=replace, daemon=True)
    scaler.start()
    time.sleep(random.uniform(0, 0.3))
    server.kill_and_start()
    scaler.join(timeout=60)
    wait_until(replace)


def attempt(work):
    """Whether it worked, and not because the last attempt is still at work."""
    try:
        work()
        return True
    except NO_ANSWER:
        return False
    except CosmosHttpResponseError as refusal:
        assert refusal.status_code == 423, refusal
        return False


@pytest.mark.timeout(400)
def test_an_application_does_not_notice_splits(own_server):
    client = CosmosClient(own_server.endpoint, EMULATOR_KEY)
    database = client.create_database(unique("db"))
    container = database.create_container(unique("c"), PartitionKey(path="/pk"), offer_throughput=400)
    fixed = {f"fixed-{number}" for number in range(FIXED)}
    for number, id in enumerate(sorted(fixed)):
        container.create_item({"id": id, "pk": f"k{number % KEYS}", "kind": "fixed", "n": number})

    def own_container():
        # A client keeps the headers of its last answer, so threads do not share one.
        own = CosmosClient(own_server.endpoint, EMULATOR_KEY)
        return own.get_database_client(database.id).get_container_client(container.id)

    written = [{} for _ in range(3)]

    def writer(number):
        # Each writer has its own items, so that the last version it wrote must be there.
        own = own_container()

        def work(round):
            id, key = f"w{number}-{round % 70}", f"k{round % KEYS}"
            if round % 11 == 10 and (key, id) in written[number]:
                try:
                    own.delete_item(id, partition_key=key)
                except CosmosResourceNotFoundError:
                    # It was deleted by an attempt that got no answer.
                    assert own_server.is_killed
                del written[number][key, id]
            else:
                own.upsert_item({"id": id, "pk": key, "kind": "written", "version": round})
                written[number][key, id] = round

        return work

    reader, asker, resumer, follower = (own_container() for _ in range(4))

    def read(round):
        id = f"fixed-{round % FIXED}"
        key = f"k{sorted(fixed).index(id) % KEYS}"
        assert reader.read_item(id, partition_key=key)["id"] == id

    def query(round):
        text = [
            "SELECT VALUE c.id FROM c WHERE c.kind = 'fixed'",
            "SELECT VALUE c.id FROM c WHERE c.kind = 'fixed' ORDER BY c.n",
            # This one the client merges itself.
            "SELECT c.id FROM c WHERE c.kind = 'fixed' AND c.n >= 0 ORDER BY c.n",
        ][round % 3]
        pages = {} if round % 3 == 2 else {"max_item_count": 13}
        found = list(asker.query_items(text, enable_cross_partition_query=True, **pages))
        if round % 3 == 2:
            found = [row["id"] for row in found]
        assert len(found) == len(fixed), f"{len(found)} rows in round {round}"
        assert set(found) == fixed

    def resumed_query(_round):
        # The continuation is carried over to a new iterator, page by page.
        found, token = [], None
        while True:
            query = "SELECT VALUE c.id FROM c WHERE c.kind = 'fixed'"
            pages = resumer.query_items(query, enable_cross_partition_query=True, max_item_count=23)
            pages = pages.by_page(token)
            found.extend(next(pages, []))
            token = pages.continuation_token
            if not token:
                break
        assert sorted(found) == sorted(fixed)

    changed = {}
    position = [None]

    def follow_changes(_round, pages_max=5):
        options = {"continuation": position[0]} if position[0] else {"start_time": "Beginning"}
        pages = follower.query_items_change_feed(max_item_count=50, **options).by_page()
        # The writers may be faster than a reader who wants to see the end.
        for _, page in zip(range(pages_max), pages):
            for item in page:
                changed[item["pk"], item["id"]] = item.get("version")
            position[0] = follower.client_connection.last_response_headers["etag"]

    works = [writer(number) for number in range(3)] + [read, query, resumed_query, follow_changes]
    workers = [Worker(work, own_server.is_killed) for work in works]
    for worker in workers:
        worker.start()
    try:
        for partitions in (1, 2, 4, PARTITIONS):
            scale(own_server, container, partitions * 10_000)
            wait_until(lambda: len(list(container.read_feed_ranges(force_refresh=True))) == partitions)
            # Everybody works in each state, and is in the middle of something when the next split comes.
            reached = [worker.rounds + 1 for worker in workers]
            wait_until(
                lambda: all(
                    worker.rounds >= rounds or worker.failure for worker, rounds in zip(workers, reached)
                )
            )
    finally:
        for worker in workers:
            worker._stop_asked.set()
    for worker in workers:
        worker.finish()

    expected = {place: version for own in written for place, version in own.items()}
    rows = list(
        container.query_items("SELECT * FROM c WHERE c.kind = 'written'", enable_cross_partition_query=True)
    )
    assert len(rows) == len(expected)
    assert {(row["pk"], row["id"]): row["version"] for row in rows} == expected
    follow_changes(0, pages_max=10_000)
    for place, version in expected.items():
        assert changed[place] == version, place
    client.delete_database(database.id)
