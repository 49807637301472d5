"""Transactional batches: all or nothing, results in order, limits."""

import copy

import pytest
from azure.cosmos import PartitionKey, exceptions
from conftest import unique
from expectations import fails


@pytest.fixture
def key():
    return unique("batch")


def test_every_operation(container, key):
    for name in ("replace", "read", "delete", "patch"):
        container.create_item({"id": name, "pk": key, "value": 1})
    results = container.execute_item_batch(
        [
            ("create", ({"id": "create", "pk": key},)),
            ("upsert", ({"id": "upsert", "pk": key},)),
            ("upsert", ({"id": "upsert", "pk": key, "value": 2},)),
            ("replace", ("replace", {"id": "replace", "pk": key, "value": 2})),
            ("read", ("read",)),
            ("delete", ("delete",)),
            ("patch", ("patch", [{"op": "incr", "path": "/value", "value": 4}])),
        ],
        key,
    )
    assert [result["statusCode"] for result in results] == [201, 201, 200, 200, 200, 204, 200]
    assert [result.get("resourceBody", {}).get("value") for result in results] == [None, None, 2, 2, 1, None, 5]
    for result in results:
        assert result["requestCharge"] > 0
    for result in results[:5] + results[6:]:
        assert result["eTag"] == result["resourceBody"]["_etag"]
    headers = results.get_response_headers()
    assert float(headers["x-ms-request-charge"]) > 0
    assert headers["x-ms-session-token"]
    assert container.read_item("patch", key)["value"] == 5
    with fails(404):
        container.read_item("delete", key)


def test_operations_see_earlier_ones(container, key):
    results = container.execute_item_batch(
        [
            ("create", ({"id": "a", "pk": key, "value": 1},)),
            ("patch", ("a", [{"op": "incr", "path": "/value", "value": 1}])),
            ("read", ("a",)),
            ("delete", ("a",)),
            ("create", ({"id": "a", "pk": key, "value": 10},)),
        ],
        key,
    )
    assert results[2]["resourceBody"]["value"] == 2
    assert container.read_item("a", key)["value"] == 10


FAILURES = {
    "create of an existing item": (("create", ({"id": "there", "pk": None},)), 409),
    "read of a missing item": (("read", ("missing",)), 404),
    "replace of a missing item": (("replace", ("missing", {"id": "missing", "pk": None})), 404),
    "delete of a missing item": (("delete", ("missing",)), 404),
    "patch of a missing item": (("patch", ("missing", [{"op": "set", "path": "/a", "value": 1}])), 404),
    "replace with a stale etag": (
        ("replace", ("there", {"id": "there", "pk": None}), {"if_match_etag": '"stale"'}),
        412,
    ),
    "patch with a false condition": (
        ("patch", ("there", [{"op": "set", "path": "/a", "value": 1}]), {"filter_predicate": "from c where c.number = 2"}),
        412,
    ),
}


@pytest.mark.parametrize("failing, status", FAILURES.values(), ids=FAILURES.keys())
def test_a_failure_undoes_everything(container, key, failing, status):
    container.create_item({"id": "there", "pk": key, "number": 1})
    failing = copy.deepcopy(failing)  # The client takes options out of it.
    for argument in failing[1]:
        if isinstance(argument, dict):
            argument["pk"] = key
    with pytest.raises(exceptions.CosmosBatchOperationError) as caught:
        container.execute_item_batch(
            [
                ("create", ({"id": "before", "pk": key},)),
                failing,
                ("create", ({"id": "after", "pk": key},)),
            ],
            key,
        )
    error = caught.value
    assert error.error_index == 1
    assert error.status_code == status
    assert [result["statusCode"] for result in error.operation_responses] == [424, status, 424]
    for name in ("before", "after"):
        with fails(404):
            container.read_item(name, key)


def test_etag_conditions(container, key):
    item = container.create_item({"id": "a", "pk": key, "value": 1})
    results = container.execute_item_batch(
        [
            ("read", ("a",), {"if_none_match_etag": item["_etag"]}),
            ("replace", ("a", {"id": "a", "pk": key, "value": 2}), {"if_match_etag": item["_etag"]}),
        ],
        key,
    )
    assert [result["statusCode"] for result in results] == [304, 200]


def test_a_hundred_operations(container, key):
    operations = [("create", ({"id": f"{number}", "pk": key},)) for number in range(100)]
    results = container.execute_item_batch(operations, key)
    assert [result["statusCode"] for result in results] == [201] * 100


def test_too_many_operations(container, key):
    operations = [("create", ({"id": f"{number}", "pk": key},)) for number in range(101)]
    with fails(400, message="Batch request has more operations than what is supported."):
        container.execute_item_batch(operations, key)


def test_no_operations(container, key):
    with fails(400, message="Batch request has no operations."):
        container.execute_item_batch([], key)


def test_too_large(container, key):
    filler = "f" * 800_000
    operations = [("create", ({"id": f"{number}", "pk": key, "filler": filler},)) for number in range(3)]
    with fails(413):
        container.execute_item_batch(operations, key)


def test_another_partition_key_is_refused(container, key):
    operations = [("create", ({"id": "a", "pk": key},)), ("create", ({"id": "b", "pk": "another"},))]
    with pytest.raises(exceptions.CosmosBatchOperationError) as caught:
        container.execute_item_batch(operations, key)
    assert [result["statusCode"] for result in caught.value.operation_responses] == [424, 400]


def test_unique_ids_in_one_batch(container, key):
    with pytest.raises(exceptions.CosmosBatchOperationError) as caught:
        container.execute_item_batch([("create", ({"id": "a", "pk": key},))] * 2, key)
    assert caught.value.error_index == 1
    assert caught.value.status_code == 409


def test_hierarchical(new_container):
    container = new_container(PartitionKey(path=["/a", "/b", "/c"], kind="MultiHash"))
    body = {"a": "x", "b": "y", "c": "z"}
    results = container.execute_item_batch(
        [("create", ({"id": "1", **body},)), ("create", ({"id": "2", **body},)), ("read", ("1",))], ["x", "y", "z"]
    )
    assert [result["statusCode"] for result in results] == [201, 201, 200]
    with fails(400):
        container.execute_item_batch([("create", ({"id": "3", **body},))], ["x", "y"])


@pytest.mark.parametrize("key", [5, True, None, "unicode ü 日本"])
def test_key_kinds(container, key):
    name = unique()
    results = container.execute_item_batch([("create", ({"id": name, "pk": key},))], key)
    assert results[0]["statusCode"] == 201
    assert container.read_item(name, key)["id"] == name
