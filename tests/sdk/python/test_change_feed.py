"""The change feed in both modes: order, starts, scopes, continuations, scripts among the writers."""

import pytest
from azure.cosmos import PartitionKey
from expectations import fails

EVERY_VERSION = {"change_feed_policy": {"retentionDuration": 10}}


@pytest.fixture
def position():
    """Reads changes to the end; answers them and the client's token to go on from."""

    def read(container, **options):
        changes = list(container.query_items_change_feed(**options))
        return changes, container.client_connection.last_response_headers["etag"]

    return read


def told(changes):
    """`create 1@2` for each change of all versions."""
    lines = []
    for change in changes:
        metadata = change["metadata"]
        item = change["current"]
        name = metadata["id"] if metadata["operationType"] == "delete" else f"{item['id']}@{item['n']}"
        lines.append(f"{metadata['operationType']} {name}")
    return lines


def put(container, name, number, pk="a"):
    container.upsert_item({"id": name, "pk": pk, "n": number})


def test_each_item_stands_at_its_last_change(new_container, position):
    container = new_container()
    for name, number in [("1", 1), ("2", 1), ("1", 2), ("3", 1)]:
        put(container, name, number)
    container.delete_item("3", "a")
    changes, token = position(container, start_time="Beginning")
    assert [(change["id"], change["n"]) for change in changes] == [("2", 1), ("1", 2)]
    assert position(container, continuation=token)[0] == []
    put(container, "2", 2)
    assert [change["n"] for change in position(container, continuation=token)[0]] == [2]


def test_numbers_begin_as_in_the_service(new_container, position):
    """A new partition is at 1, so its first write is 2: readers with an end count on it."""
    for options in ({}, EVERY_VERSION):
        container = new_container(**options)
        for name in "123":
            put(container, name, 1)
        changes, _ = position(container, start_time="Beginning")
        assert [change["_lsn"] for change in changes] == [2, 3, 4]


def test_from_now_and_by_scope(new_container, position):
    container = new_container()
    put(container, "1", 1)
    nothing, token = position(container, start_time="Now")
    assert nothing == []
    put(container, "2", 1)
    put(container, "3", 1, pk="b")
    assert {change["id"] for change in position(container, continuation=token)[0]} == {"2", "3"}
    of_key, _ = position(container, partition_key="b", start_time="Beginning")
    assert [change["id"] for change in of_key] == ["3"]
    seen = []
    for feed_range in container.read_feed_ranges():
        seen += position(container, feed_range=feed_range, start_time="Beginning")[0]
    assert {change["id"] for change in seen} == {"1", "2", "3"}


def test_a_prefix_of_a_hierarchical_key(new_container, position):
    container = new_container(PartitionKey(path=["/a", "/b"], kind="MultiHash"))
    for a, b in [("x", "1"), ("x", "2"), ("y", "1")]:
        container.create_item({"id": f"{a}{b}", "a": a, "b": b})
    prefix = container.feed_range_from_partition_key(["x"])
    changes, _ = position(container, feed_range=prefix, start_time="Beginning")
    assert {change["id"] for change in changes} == {"x1", "x2"}


def test_every_version_and_delete(new_container, position):
    container = new_container(**EVERY_VERSION)
    _, token = position(container, start_time="Now", mode="AllVersionsAndDeletes")
    for name, number in [("1", 1), ("2", 1), ("1", 2)]:
        put(container, name, number)
    container.delete_item("1", "a")
    changes, _ = position(container, continuation=token, mode="AllVersionsAndDeletes")
    assert told(changes) == ["create 1@1", "create 2@1", "replace 1@2", "delete 1"]
    numbers = [change["metadata"]["lsn"] for change in changes]
    assert numbers == sorted(set(numbers))
    assert changes[2]["metadata"]["previousImageLSN"] == numbers[0]
    assert changes[3]["metadata"]["previousImageLSN"] == numbers[2]
    assert changes[3]["metadata"]["partitionKey"] == {"pk": "a"}
    # Without an opt-in that no client makes, the service sends no image of the version before.
    assert all("previous" not in change for change in changes)


def test_each_write_of_a_procedure_is_a_version(new_container, position, clients):
    container = new_container(**EVERY_VERSION)
    body = """function (fails) {
        var link = __.getSelfLink();
        __.upsertDocument(link, {id: '1', pk: 'a', n: 1});
        __.upsertDocument(link, {id: '1', pk: 'a', n: 2}, {}, function (error, item) {
            if (error) throw error;
            if (fails) throw new Error('undone');
            __.deleteDocument(item._self);
        });
    }"""
    container.scripts.create_stored_procedure({"id": "write", "body": body})
    _, token = position(container, start_time="Now", mode="AllVersionsAndDeletes")
    name = "params" if clients.kind == "sync" else "parameters"
    with fails(400):
        container.scripts.execute_stored_procedure("write", partition_key="a", **{name: [True]})
    container.scripts.execute_stored_procedure("write", partition_key="a", **{name: [False]})
    changes, _ = position(container, continuation=token, mode="AllVersionsAndDeletes")
    assert told(changes) == ["create 1@1", "replace 1@2", "delete 1"]
