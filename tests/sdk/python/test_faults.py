"""Faults on purpose: what the client retries by itself, the application does not notice."""

import time

import orrery_server
import pytest
from azure.core.exceptions import AzureError
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError
from conftest import EMULATOR_KEY, unique


def fault(server, **rule):
    return orrery_server.control(server, EMULATOR_KEY, "faults", rule)


def rules(server):
    return orrery_server.control(server, EMULATOR_KEY, "faults")["rules"]


@pytest.fixture(scope="module")
def faulty_server():
    server = orrery_server.start(["--in-memory", "--test-controls"])
    yield server
    server.stop()


@pytest.fixture
def container(faulty_server):
    client = CosmosClient(faulty_server.endpoint, EMULATOR_KEY)
    database = client.create_database(unique("db"))
    container = database.create_container(unique("c"), PartitionKey(path="/pk"))
    container.upsert_item({"id": "1", "pk": "a"})
    yield container
    client.delete_database(database.id)


def test_throttling_is_waited_out(faulty_server, container):
    fault(faulty_server, status=429, retryAfterMs=1, count=3, container=container.id, operations=["upsert"])
    container.upsert_item({"id": "2", "pk": "a"})
    assert container.read_item("2", "a")["id"] == "2"


def test_one_throttling_too_many_is_told(faulty_server, container):
    rule = fault(faulty_server, status=429, retryAfterMs=1, container=container.id, operations=["read"])
    with pytest.raises(CosmosHttpResponseError) as refusal:
        container.read_item("1", "a")
    assert refusal.value.status_code == 429
    assert refusal.value.headers["x-orrery-fault"] == rule["id"]


def test_a_read_survives_a_lost_connection(faulty_server, container):
    fault(faulty_server, dropConnection=True, count=1, container=container.id, operations=["read"])
    assert container.read_item("1", "a")["id"] == "1"


def test_a_fault_that_no_client_retries_is_seen_as_it_is(faulty_server, container):
    rule = fault(faulty_server, status=500, count=1, container=container.id, operations=["replace"])
    with pytest.raises(CosmosHttpResponseError) as refusal:
        container.replace_item("1", {"id": "1", "pk": "a", "n": 1})
    assert refusal.value.status_code == 500
    assert refusal.value.headers["x-orrery-fault"] == rule["id"]
    assert "n" not in container.read_item("1", "a")


# What the client retries by itself, and what it hands to the application.
RETRIED = {("read", 408), ("read", 500), ("read", 503), ("upsert", 503)}


@pytest.mark.parametrize("status", [408, 410, 449, 500, 503])
@pytest.mark.parametrize("operation", ["read", "upsert"])
def test_each_status_arrives(faulty_server, container, status, operation):
    rule = fault(faulty_server, status=status, count=1, container=container.id, operations=[operation])
    act = {
        "read": lambda: container.read_item("1", "a"),
        "upsert": lambda: container.upsert_item({"id": "1", "pk": "a"}),
    }[operation]
    if (operation, status) not in RETRIED:
        with pytest.raises(CosmosHttpResponseError) as refusal:
            act()
        assert refusal.value.status_code == status
        assert refusal.value.headers["x-orrery-fault"] == rule["id"]
    assert act()["id"] == "1"
    [seen] = [one for one in rules(faulty_server) if one["id"] == rule["id"]]
    assert (seen["hits"], seen["active"]) == (1, False)


def test_latency_is_waited_for_and_named(faulty_server, container):
    rule = fault(faulty_server, latencyMs=300, count=1, container=container.id, operations=["read"])
    headers = {}
    started = time.monotonic()
    container.read_item("1", "a", response_hook=lambda given, _: headers.update(given))
    assert time.monotonic() - started >= 0.3
    assert headers["x-orrery-fault"] == rule["id"]


def test_a_write_whose_connection_is_lost_was_not_done(faulty_server, container):
    rule = fault(faulty_server, dropConnection=True, container=container.id, operations=["create"])
    with pytest.raises(AzureError):
        container.create_item({"id": "lost", "pk": "a"})
    orrery_server.control(faulty_server, EMULATOR_KEY, f"faults/{rule['id']}", method="DELETE")
    container.create_item({"id": "lost", "pk": "a"})
