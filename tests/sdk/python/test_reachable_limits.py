"""Limits made small: a key that is full, a partition that splits because of what it holds."""

import time

import orrery_server
import pytest
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError
from conftest import EMULATOR_KEY, unique


@pytest.fixture(scope="module")
def database():
    # 20 GB become 2 MB, 50 GB become 5 MB.
    server = orrery_server.start(["--in-memory", "--limits-scale", "0.0001"])
    client = CosmosClient(server.endpoint, EMULATOR_KEY)
    yield client.create_database(unique("db"))
    server.stop()


def test_a_full_key_takes_no_more(database):
    container = database.create_container(unique("c"), PartitionKey(path="/pk"))
    with pytest.raises(CosmosHttpResponseError) as refused:
        for number in range(50):
            container.create_item({"id": str(number), "pk": "full", "x": "x" * 100_000})
    assert (refused.value.status_code, refused.value.sub_status) == (403, 1014)
    container.create_item({"id": "1", "pk": "another", "x": "x" * 100_000})
    container.delete_item("0", partition_key="full")
    container.create_item({"id": "last", "pk": "full", "x": "x" * 50_000})


def test_a_full_partition_splits(database):
    container = database.create_container(unique("c"), PartitionKey(path="/pk"))
    assert len(list(container.read_feed_ranges(force_refresh=True))) == 1
    for number in range(90):
        container.create_item({"id": str(number), "pk": f"k{number}", "x": "x" * 90_000})
    deadline = time.monotonic() + 60
    while len(list(container.read_feed_ranges(force_refresh=True))) < 2 and time.monotonic() < deadline:
        time.sleep(0.2)
    assert len(list(container.read_feed_ranges(force_refresh=True))) >= 2
    rows = list(container.query_items("SELECT VALUE c.id FROM c", enable_cross_partition_query=True))
    assert sorted(map(int, rows)) == list(range(90))
