"""Synthetic partition keys: made by the library in the application, and made by the server."""

import pathlib
import sys

import pytest
from azure.cosmos import PartitionKey
from conftest import unique
from expectations import fails

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "clients" / "python" / "src"))

from synthetic_key import Definition  # noqa: E402

VIN = "1HGCM82633A004352"
CONCATENATED = {"format": 1, "kind": "concatenate", "parts": ["/deviceId", "/date"]}
RANDOM = {"format": 1, "kind": "randomSuffix", "parts": ["/date"], "suffix": {"count": 400}}
PRECALCULATED = {
    "format": 1,
    "kind": "precalculatedSuffix",
    "parts": ["/date"],
    "suffix": {"of": ["/VIN"], "count": 400},
}


@pytest.fixture(scope="module")
def plain(database):
    return database.create_container(unique("plain"), PartitionKey(path="/partitionKey"))


@pytest.fixture(scope="module")
def crossing(clients):
    """The asynchronous client always crosses partitions and takes no such option."""
    return {"enable_cross_partition_query": True} if clients.kind == "sync" else {}


def making(database, definition):
    key = PartitionKey(path="/partitionKey")
    key["orrerySyntheticKey"] = definition
    return database.create_container(unique("making"), key)


def test_concatenated_by_the_application(plain):
    item = {"id": unique(), "deviceId": "abc-123", "date": 2018}
    Definition(CONCATENATED).insert_into(item)
    plain.create_item(item)
    assert plain.read_item(item["id"], "abc-123-2018")["partitionKey"] == "abc-123-2018"


def test_random_suffixes_by_the_application(plain, crossing):
    definition, marker = Definition(RANDOM), unique()
    for number in range(20):
        item = {"id": f"{marker}-{number}", "date": "2018-08-09", "marker": marker}
        definition.insert_into(item)
        plain.create_item(item)
    keys = [key.value for key in definition.keys_for({"date": "2018-08-09"})]
    assert keys == [f"2018-08-09.{number}" for number in range(1, 401)]
    query = "SELECT VALUE c.partitionKey FROM c WHERE c.marker = @marker"
    rows = plain.query_items(query, parameters=[{"name": "@marker", "value": marker}], **crossing)
    found = list(rows)
    assert len(found) == 20 and set(found) <= set(keys)


def test_a_vehicle_is_read_back_with_one_point_read(plain):
    definition = Definition(PRECALCULATED)
    item = {"id": unique(), "date": "2018-08-09", "VIN": VIN}
    definition.insert_into(item)
    plain.create_item(item)
    (key,) = definition.keys_for({"date": "2018-08-09", "VIN": VIN})
    assert key.value == "2018-08-09.353"
    assert plain.read_item(item["id"], key.value)["VIN"] == VIN


def test_the_server_makes_the_key(database):
    container = making(database, PRECALCULATED)
    shown = container.read()
    assert shown["orrerySyntheticKey"] == PRECALCULATED
    created = container.create_item({"id": "1", "date": "2018-08-09", "VIN": VIN})
    assert created["partitionKey"] == "2018-08-09.353"
    assert container.read_item("1", "2018-08-09.353")["VIN"] == VIN
    assert container.upsert_item({"id": "1", "date": "2018-08-09", "VIN": VIN, "n": 2})["n"] == 2
    assert container.replace_item("1", {"id": "1", "date": "2018-08-09", "VIN": VIN, "n": 3})["n"] == 3
    with fails(400):
        container.create_item({"id": "2", "date": "2018-08-09", "VIN": VIN, "partitionKey": "2018-08-09.1"})
    with fails(400):
        container.create_item({"id": "2", "VIN": VIN})
    with fails(400):
        container.patch_item("1", "2018-08-09.353", [{"op": "set", "path": "/VIN", "value": "other"}])
    query = "SELECT VALUE c.n FROM c WHERE c.date = @date AND c.VIN = @vin"
    parameters = [{"name": "@date", "value": "2018-08-09"}, {"name": "@vin", "value": VIN}]
    # The filter names one key, so no leave to cross partitions is needed.
    assert list(container.query_items(query, parameters=parameters)) == [3]


def test_the_server_draws_suffixes(database, crossing):
    container = making(database, RANDOM)
    for number in range(30):
        item = container.create_item({"id": str(number), "date": "2018-08-09"})
        key = item["partitionKey"]
        assert key.startswith("2018-08-09.") and 1 <= int(key.removeprefix("2018-08-09.")) <= 400
    with fails(400):
        container.create_item({"id": "x", "date": "2018-08-09", "partitionKey": "2018-08-09.401"})
    query = "SELECT VALUE c.id FROM c WHERE c.date = '2018-08-09'"
    found = container.query_items(query, **crossing)
    assert sorted(found, key=int) == [str(number) for number in range(30)]
