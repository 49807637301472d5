"""Partition key values of every kind, single and hierarchical."""

import pytest
from azure.cosmos import PartitionKey, exceptions
from azure.cosmos.partition_key import NonePartitionKeyValue, NullPartitionKeyValue
from conftest import unique
from expectations import fails

SCALARS = {
    "string": "abc",
    "empty string": "",
    "number": 5,
    "zero": 0,
    "negative": -7,
    "fraction": 3.5,
    "large number": 9007199254740991,
    "true": True,
    "false": False,
    "unicode": "Straße 東京 😀",
    "quotes": 'a "quoted" \\ value',
    "control characters": "tab\tnewline\n",
    "looks like JSON": "[1]",
    "looks like a number": "5",
    "long": "k" * 1000,
}


@pytest.fixture(scope="module", params=[1, 2], ids=["version 1", "version 2"])
def any_version(request, database):
    return database.create_container(unique("keys"), PartitionKey(path="/pk", version=request.param))


@pytest.mark.parametrize("key", SCALARS.values(), ids=SCALARS.keys())
def test_scalar(any_version, key):
    container, name = any_version, unique()
    container.create_item({"id": name, "pk": key, "value": 1})
    assert container.read_item(name, key)["pk"] == key
    assert container.upsert_item({"id": name, "pk": key, "value": 2})["value"] == 2
    assert container.replace_item(name, {"id": name, "pk": key, "value": 3})["value"] == 3
    assert container.patch_item(name, key, [{"op": "incr", "path": "/value", "value": 1}])["value"] == 4
    container.delete_item(name, key)
    with fails(404):
        container.read_item(name, key)


@pytest.mark.parametrize("null", [None, NullPartitionKeyValue], ids=["None", "NullPartitionKeyValue"])
def test_null(any_version, null):
    container, name = any_version, unique()
    container.create_item({"id": name, "pk": None, "value": 1})
    assert container.read_item(name, null)["value"] == 1
    container.delete_item(name, null)


def test_undefined(any_version):
    container, name = any_version, unique()
    container.create_item({"id": name, "value": 1})
    read = container.read_item(name, NonePartitionKeyValue)
    assert "pk" not in read
    assert container.replace_item(name, {"id": name, "value": 2})["value"] == 2
    patched = container.patch_item(name, NonePartitionKeyValue, [{"op": "set", "path": "/value", "value": 3}])
    assert patched["value"] == 3
    container.delete_item(name, NonePartitionKeyValue)
    with fails(404):
        container.read_item(name, NonePartitionKeyValue)


def test_kinds_are_kept_apart(any_version):
    container, name = any_version, unique()
    keys = ["1", 1, True, None, ""]
    for value, key in enumerate(keys):
        container.create_item({"id": name, "pk": key, "value": value})
    container.create_item({"id": name, "value": "undefined"})
    for value, key in enumerate(keys):
        assert container.read_item(name, key)["value"] == value
    assert container.read_item(name, NonePartitionKeyValue)["value"] == "undefined"


def test_equal_numbers_are_one_key(any_version):
    container, name = any_version, unique()
    container.create_item({"id": name, "pk": 1})
    assert container.read_item(name, 1.0)["id"] == name
    with fails(409):
        container.create_item({"id": name, "pk": 1.0})


def test_the_wrong_key_finds_nothing(any_version):
    name = unique()
    any_version.create_item({"id": name, "pk": "right"})
    with fails(404, 0):
        any_version.read_item(name, "wrong")


def test_a_key_beyond_the_limit_is_refused(new_container):
    container = new_container()
    container.create_item({"id": "a", "pk": "k" * 2048})
    assert container.read_item("a", "k" * 2048)["id"] == "a"
    with fails(400):
        container.create_item({"id": "b", "pk": "k" * 2049})


def test_an_object_at_the_path_counts_as_undefined(container):
    name = unique()
    container.create_item({"id": name, "pk": {"a": 1}})
    assert container.read_item(name, NonePartitionKeyValue)["pk"] == {"a": 1}


def test_nested_paths(new_container):
    container = new_container(PartitionKey(path='/address/"zip code"'))
    container.create_item({"id": "a", "address": {"zip code": "98052"}})
    container.create_item({"id": "b", "address": "not an object"})
    assert container.read_item("a", "98052")["id"] == "a"
    assert container.read_item("b", NonePartitionKeyValue)["id"] == "b"


def test_quoted_paths(new_container):
    container = new_container(PartitionKey(path='/"first/level"/second'))
    container.create_item({"id": "a", "first/level": {"second": "x"}})
    assert container.read_item("a", "x")["id"] == "a"


def test_the_id_as_key(new_container):
    container = new_container(PartitionKey(path="/id"))
    container.create_item({"id": "a"})
    assert container.read_item("a", "a")["id"] == "a"
    container.delete_item("a", "a")


def test_many_keys_over_many_partitions(new_container):
    container = new_container(offer_throughput=30000)
    for number in range(60):
        container.create_item({"id": "same", "pk": f"key {number}", "number": number})
    for number in range(60):
        assert container.read_item("same", f"key {number}")["number"] == number
    assert sorted(item["number"] for item in container.read_all_items()) == list(range(60))


@pytest.fixture(scope="module")
def three_levels(database):
    return database.create_container(
        unique("three"), PartitionKey(path=["/tenant", "/user", "/session"], kind="MultiHash")
    )


@pytest.fixture(scope="module")
def two_levels(database):
    return database.create_container(unique("two"), PartitionKey(path=["/tenant", "/user"], kind="MultiHash"))


HIERARCHICAL = [
    ["contoso", "alice", "s1"],
    ["contoso", "alice", ""],
    ["contoso", 5, True],
    ["contoso", None, "s"],
    [None, None, None],
    ["ü", "日本", "😀"],
    [0, -1.5, False],
]


@pytest.mark.parametrize("key", HIERARCHICAL, ids=str)
def test_three_levels(three_levels, key):
    container, name = three_levels, unique()
    body = dict(zip(("tenant", "user", "session"), key))
    container.create_item({"id": name, **body, "value": 1})
    assert container.read_item(name, key)["value"] == 1
    assert container.upsert_item({"id": name, **body, "value": 2})["value"] == 2
    assert container.replace_item(name, {"id": name, **body, "value": 3})["value"] == 3
    assert container.patch_item(name, key, [{"op": "incr", "path": "/value", "value": 1}])["value"] == 4
    container.delete_item(name, key)
    with fails(404):
        container.read_item(name, key)


def test_two_levels(two_levels):
    container, name = two_levels, unique()
    container.create_item({"id": name, "tenant": "t", "user": "u1", "value": 1})
    container.create_item({"id": name, "tenant": "t", "user": "u2", "value": 2})
    assert container.read_item(name, ["t", "u1"])["value"] == 1
    assert container.read_item(name, ["t", "u2"])["value"] == 2
    with fails(404):
        container.read_item(name, ["u1", "t"])


@pytest.mark.parametrize("key", [["contoso"], ["contoso", "alice"]], ids=str)
def test_a_point_operation_needs_the_whole_key(three_levels, key):
    name = unique()
    three_levels.create_item({"id": name, "tenant": "contoso", "user": "alice", "session": "s1"})
    with fails(400, 1001):
        three_levels.read_item(name, key)
    with fails(400, 1001):
        three_levels.delete_item(name, key)


def test_too_many_components(two_levels, container):
    # A client that knows the container's session counts the components itself.
    for container, key in ((two_levels, ["t", "u", "too many"]), (container, ["one", "two"])):
        with pytest.raises((exceptions.CosmosHttpResponseError, ValueError)) as caught:
            container.read_item("a", key)
        assert getattr(caught.value, "status_code", 400) == 400
