"""Time to live: expiry of items by the container's default and by their own value."""

import time

import pytest
from azure.cosmos import exceptions
from expectations import fails

EXPIRY_SECONDS_MAX = 10


def wait_until_gone(container, name, key):
    deadline = time.monotonic() + EXPIRY_SECONDS_MAX
    while time.monotonic() < deadline:
        try:
            container.read_item(name, key)
        except exceptions.CosmosResourceNotFoundError:
            return
        time.sleep(0.1)
    raise AssertionError(f"{name} is still there after {EXPIRY_SECONDS_MAX} s")


def test_items_expire(new_container):
    container = new_container(default_ttl=2)
    container.create_item({"id": "default", "pk": "x"})
    container.create_item({"id": "own", "pk": "x", "ttl": 1})
    container.create_item({"id": "never", "pk": "x", "ttl": -1})
    container.create_item({"id": "later", "pk": "x", "ttl": 1000})
    wait_until_gone(container, "own", "x")
    wait_until_gone(container, "default", "x")
    assert sorted(item["id"] for item in container.read_all_items()) == ["later", "never"]
    for operation in (
        lambda: container.delete_item("own", "x"),
        lambda: container.replace_item("own", {"id": "own", "pk": "x"}),
        lambda: container.patch_item("own", "x", [{"op": "set", "path": "/a", "value": 1}]),
    ):
        with fails(404):
            operation()
    created = container.create_item({"id": "own", "pk": "x", "ttl": -1})
    assert container.read_item("own", "x")["_rid"] == created["_rid"]


def test_without_a_default_nothing_expires(new_container):
    container = new_container(default_ttl=-1)
    container.create_item({"id": "kept", "pk": "x"})
    container.create_item({"id": "own", "pk": "x", "ttl": 1})
    wait_until_gone(container, "own", "x")
    assert container.read_item("kept", "x")["id"] == "kept"


def test_a_container_without_ttl_ignores_the_items_value(new_container):
    with_ttl, without = new_container(default_ttl=-1), new_container()
    without.create_item({"id": "a", "pk": "x", "ttl": 1})
    with_ttl.create_item({"id": "a", "pk": "x", "ttl": 1})
    wait_until_gone(with_ttl, "a", "x")
    assert without.read_item("a", "x")["ttl"] == 1


def test_a_write_starts_the_time_again(new_container):
    container = new_container(default_ttl=3)
    container.create_item({"id": "renewed", "pk": "x"})
    container.create_item({"id": "left", "pk": "x"})
    deadline = time.monotonic() + EXPIRY_SECONDS_MAX
    gone = False
    while not gone and time.monotonic() < deadline:
        container.upsert_item({"id": "renewed", "pk": "x"})
        try:
            container.read_item("left", "x")
        except exceptions.CosmosResourceNotFoundError:
            gone = True
        time.sleep(0.2)
    assert gone
    assert container.read_item("renewed", "x")["id"] == "renewed"


def test_an_expired_item_frees_its_unique_key(new_container):
    container = new_container(default_ttl=-1, unique_key_policy={"uniqueKeys": [{"paths": ["/email"]}]})
    container.create_item({"id": "a", "pk": "x", "email": "e", "ttl": 1})
    wait_until_gone(container, "a", "x")
    container.create_item({"id": "b", "pk": "x", "email": "e"})


@pytest.mark.parametrize("ttl", [0, -2, 1.5, "10", None, 2147483648], ids=repr)
def test_refused_values(new_container, ttl):
    container = new_container(default_ttl=-1)
    with fails(400):
        container.create_item({"id": "a", "pk": "x", "ttl": ttl})


def test_the_largest_value(new_container):
    container = new_container(default_ttl=2147483647)
    assert container.create_item({"id": "a", "pk": "x", "ttl": 2147483647})["ttl"] == 2147483647
    assert container.read_item("a", "x")["id"] == "a"
