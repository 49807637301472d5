"""Errors: status, sub-status, body and headers as the clients need them."""

import json
import urllib.error
import urllib.request

import pytest
from azure.cosmos import PartitionKey, exceptions
from conftest import unique
from expectations import fails


def body_of(error):
    return json.loads(error.http_error_message)


def test_the_body_has_code_and_message(container):
    with fails(404) as caught:
        container.read_item(unique("missing"), "a")
    body = body_of(caught.value)
    assert body["code"] == "NotFound"
    assert "does not exist" in body["message"]
    assert caught.value.headers["x-ms-activity-id"] in body["message"]
    assert caught.value.headers["content-type"].startswith("application/json")


def test_a_missing_container_is_a_missing_owner(database):
    missing = database.get_container_client(unique("missing"))
    with fails(404):
        missing.read()
    with fails(404):
        missing.read_item("a", "x")
    with fails(404):
        missing.create_item({"id": "a", "pk": "x"})


def test_the_owner_sub_status(database):
    name = unique("deleted")
    container = database.create_container(name, PartitionKey(path="/pk"))
    container.create_item({"id": "a", "pk": "x"})
    database.delete_container(name)
    # The client knows the container already, so the item request itself meets the missing owner.
    with pytest.raises(exceptions.CosmosHttpResponseError) as caught:
        database.client_connection.CreateItem(
            container.container_link,
            {"id": "b", "pk": "x"},
            {"partitionKey": "x", "containerRID": None},
        )
    assert caught.value.status_code == 404
    assert caught.value.sub_status in (1003, None)


def test_a_missing_database(client):
    missing = client.get_database_client(unique("missing"))
    with fails(404):
        missing.read()
    with fails(404):
        missing.get_container_client("c").read()


def test_the_key_in_the_header_must_match_the_body(container):
    with fails(400, 1001, "doesn't match"):
        container.client_connection.CreateItem(
            container.container_link, {"id": unique(), "pk": "body"}, {"partitionKey": "header"}
        )


def test_a_conflict(container):
    item = container.create_item({"id": unique(), "pk": "a"})
    with fails(409) as caught:
        container.create_item({"id": item["id"], "pk": "a"})
    assert isinstance(caught.value, exceptions.CosmosResourceExistsError)
    assert body_of(caught.value)["code"] == "Conflict"
    assert caught.value.headers["x-ms-session-token"]


@pytest.mark.parametrize("count", [-2])
def test_a_refused_page_size(container, count):
    with fails(400):
        list(container.read_all_items(max_item_count=count))


def test_the_activity_id_of_the_client_comes_back(endpoint):
    # Sent without the SDK, which makes an activity id of its own for every request.
    activity = "6f1d3c1e-6d0d-4b39-9f4c-7c1f6a1f2b3d"
    request = urllib.request.Request(endpoint + "dbs", headers={"x-ms-activity-id": activity})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    assert caught.value.headers["x-ms-activity-id"] == activity
    assert activity in json.loads(caught.value.read())["message"]


def test_an_unknown_priority_is_refused(container):
    name = unique()
    container.create_item({"id": name, "pk": "a"}, priority="Low")
    assert container.read_item(name, "a", priority="High")["id"] == name
    with pytest.raises(Exception) as caught:
        container.read_item(name, "a", priority="Urgent")
    assert getattr(caught.value, "status_code", 400) == 400
