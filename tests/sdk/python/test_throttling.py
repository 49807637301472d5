"""Requests beyond the provisioned throughput are told to wait, truthfully, and clients do."""

import orrery_server
import pytest
from azure.cosmos import CosmosClient, PartitionKey, ThroughputProperties
from azure.cosmos.exceptions import CosmosHttpResponseError
from conftest import EMULATOR_KEY, unique

# A write of this many bytes costs more than twenty units.
LARGE = "x" * 60_000


def move_clock(server, **how):
    return orrery_server.control(server, EMULATOR_KEY, "clock", how)


@pytest.fixture(scope="module")
def strict_server():
    # The clock stands still unless a test moves it: how fast this machine is must not matter.
    server = orrery_server.start(["--in-memory", "--no-throttle=false", "--test-controls"])
    move_clock(server, freeze=True)
    yield server
    server.stop()


@pytest.fixture
def throttled(strict_server):
    """A container with 400 units a second, and a client that does not try again."""
    client = CosmosClient(strict_server.endpoint, EMULATOR_KEY, retry_throttle_total=0)
    name = unique("db")
    database = client.create_database(name)
    yield database.create_container(unique("c"), PartitionKey(path="/pk"), offer_throughput=400)
    client.delete_database(name)


def spend(container, key="a"):
    """Writes until it is told to wait; answers what was delivered and the refusal."""
    delivered = 0.0
    for number in range(1000):
        try:
            container.upsert_item({"id": str(number % 7), "pk": key, "x": LARGE})
            delivered += float(container.client_connection.last_response_headers["x-ms-request-charge"])
        except CosmosHttpResponseError as refusal:
            return delivered, refusal
    raise AssertionError("nobody was told to wait")


def test_the_refusal_says_when_to_come_again(strict_server, throttled):
    delivered, refusal = spend(throttled)
    assert 400 <= delivered < 450
    assert refusal.status_code == 429
    assert refusal.sub_status == 3200
    assert "Request rate is large" in refusal.message
    wait_ms = int(refusal.headers["x-ms-retry-after-ms"])
    assert 0 < wait_ms < 2000
    move_clock(strict_server, advanceMs=wait_ms - 1)
    with pytest.raises(CosmosHttpResponseError):
        throttled.upsert_item({"id": "1", "pk": "a"})
    move_clock(strict_server, advanceMs=1)
    throttled.upsert_item({"id": "1", "pk": "a"})
    event = orrery_server.control(strict_server, EMULATOR_KEY, "throttles")[0]
    assert (event["partitionKey"], event["keySharePercent"], event["budgetPerSecond"]) == ('["a"]', 100, 400)


def test_a_client_that_tries_again_succeeds(strict_server, throttled):
    spend(throttled)
    patient = CosmosClient(strict_server.endpoint, EMULATOR_KEY)
    database = throttled.container_link.split("/")[1]
    patient = patient.get_database_client(database).get_container_client(throttled.id)
    move_clock(strict_server, freeze=False)
    try:
        for number in range(3):
            patient.upsert_item({"id": str(number), "pk": "a", "x": LARGE})
    finally:
        move_clock(strict_server, freeze=True)


def test_a_batch_is_refused_whole(strict_server, throttled):
    spend(throttled)
    operations = [("create", ({"id": name, "pk": "a"},)) for name in ("first", "second")]
    with pytest.raises(CosmosHttpResponseError) as refused:
        throttled.execute_item_batch(operations, partition_key="a")
    assert refused.value.status_code == 429
    move_clock(strict_server, advanceMs=5000)
    assert len(throttled.execute_item_batch(operations, partition_key="a")) == 2


def test_reads_and_queries_wait_too(strict_server, throttled):
    spend(throttled)
    with pytest.raises(CosmosHttpResponseError) as refused:
        throttled.read_item("1", partition_key="a")
    assert (refused.value.status_code, refused.value.sub_status) == (429, 3200)
    # Queries are tried again by the client whatever it was told, until their time comes.
    before = len(orrery_server.control(strict_server, EMULATOR_KEY, "throttles"))
    move_clock(strict_server, freeze=False)
    try:
        assert len(list(throttled.query_items("SELECT VALUE c.id FROM c", partition_key="a"))) == 7
    finally:
        move_clock(strict_server, freeze=True)
    assert len(orrery_server.control(strict_server, EMULATOR_KEY, "throttles")) >= before


def test_unused_throughput_is_kept_for_a_burst(strict_server, throttled):
    spend(throttled)
    move_clock(strict_server, advanceMs=60_000)
    delivered, _ = spend(throttled)
    assert 2900 <= delivered <= 3100


def test_more_throughput_lets_more_pass(strict_server, throttled):
    spend(throttled)
    throttled.replace_throughput(4000)
    move_clock(strict_server, advanceMs=1000)
    delivered, _ = spend(throttled)
    assert 3900 <= delivered <= 4100
    throughput = throttled.get_throughput()
    assert throughput.offer_throughput == 4000


def test_low_priority_is_accepted(throttled):
    throttled.upsert_item({"id": "1", "pk": "a"}, priority="Low")


def test_buckets(throttled):
    throttled.upsert_item({"id": "1", "pk": "a"}, throughput_bucket=2)
    with pytest.raises(CosmosHttpResponseError) as refused:
        throttled.upsert_item({"id": "1", "pk": "a"}, throughput_bucket=9)
    assert refused.value.status_code == 400


def test_autoscale_shows_what_it_is_scaled_to(strict_server):
    client = CosmosClient(strict_server.endpoint, EMULATOR_KEY)
    database = client.create_database(unique("db"))
    offer = ThroughputProperties(auto_scale_max_throughput=1000)
    container = database.create_container(unique("c"), PartitionKey(path="/pk"), offer_throughput=offer)
    assert container.get_throughput().properties["content"]["offerThroughput"] == 100
    for _ in range(10):
        container.upsert_item({"id": "1", "pk": "a", "x": LARGE})
    assert container.get_throughput().properties["content"]["offerThroughput"] > 200
    move_clock(strict_server, advanceMs=5000)
    assert container.get_throughput().properties["content"]["offerThroughput"] == 100
    client.delete_database(database.id)
