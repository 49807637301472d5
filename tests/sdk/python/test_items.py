"""Point operations on items: what is stored, what comes back, what is refused."""

import pytest
from conftest import unique
from expectations import fails, without_system_properties


def test_create(container, headers):
    body = {"id": unique(), "pk": "a", "name": "Ada", "tags": ["x", "y"], "deep": {"er": {"still": None}}}
    created = container.create_item(body, response_hook=headers)
    assert without_system_properties(created) == body
    assert list(created)[: len(body)] == list(body), "properties keep their order"
    assert created["_attachments"] == "attachments/"
    assert created["_self"].endswith(f"/docs/{created['_rid']}/")
    assert len(created["_rid"]) == 24
    assert isinstance(created["_ts"], int)
    assert headers["etag"] == created["_etag"]
    assert float(headers["x-ms-request-charge"]) > 0
    assert headers["x-ms-session-token"]
    assert int(headers["lsn"]) > 0


def test_read(container, headers):
    created = container.create_item({"id": unique(), "pk": "a", "value": 1})
    read = container.read_item(created["id"], "a", response_hook=headers)
    assert read == created
    assert headers["etag"] == created["_etag"]
    assert float(headers["x-ms-request-charge"]) >= 1
    assert read.get_response_headers()["x-ms-session-token"]


def test_items_can_be_named_by_their_properties(container):
    created = container.create_item({"id": unique(), "pk": "a"})
    assert container.read_item(created, "a")["id"] == created["id"]
    container.delete_item(created, "a")


def test_read_of_a_missing_item(container):
    with fails(404, 0, "NotFound") as caught:
        container.read_item(unique("missing"), "a")
    assert caught.value.headers["x-ms-session-token"]


def test_the_same_id_under_another_key_is_another_item(container):
    name = unique()
    container.create_item({"id": name, "pk": "a", "value": 1})
    container.create_item({"id": name, "pk": "b", "value": 2})
    assert container.read_item(name, "a")["value"] == 1
    assert container.read_item(name, "b")["value"] == 2
    container.delete_item(name, "a")
    assert container.read_item(name, "b")["value"] == 2


def test_create_of_an_existing_item_is_a_conflict(container):
    created = container.create_item({"id": unique(), "pk": "a", "value": 1})
    with fails(409, 0, "already exists"):
        container.create_item({"id": created["id"], "pk": "a", "value": 2})
    assert container.read_item(created["id"], "a")["value"] == 1


def test_upsert_inserts_and_replaces(container, headers):
    name = unique()
    inserted = container.upsert_item({"id": name, "pk": "a", "value": 1})
    replaced = container.upsert_item({"id": name, "pk": "a", "other": 2}, response_hook=headers)
    assert without_system_properties(replaced) == {"id": name, "pk": "a", "other": 2}
    assert replaced["_rid"] == inserted["_rid"]
    assert replaced["_etag"] != inserted["_etag"]
    assert headers["etag"] == replaced["_etag"]


def test_replace(container):
    created = container.create_item({"id": unique(), "pk": "a", "value": 1})
    replaced = container.replace_item(created["id"], {"id": created["id"], "pk": "a", "value": 2})
    assert replaced["value"] == 2
    assert replaced["_rid"] == created["_rid"]
    assert replaced["_etag"] != created["_etag"]
    assert container.read_item(created["id"], "a") == replaced


def test_replace_with_what_was_read(container):
    created = container.create_item({"id": unique(), "pk": "a", "value": 1})
    read = container.read_item(created["id"], "a")
    read["value"] = 2
    read["_etag"] = "nonsense"
    replaced = container.replace_item(created["id"], dict(read))
    assert replaced["value"] == 2
    assert replaced["_etag"] not in ("nonsense", created["_etag"])


def test_a_write_that_changes_nothing_still_gives_a_new_etag(container):
    created = container.create_item({"id": unique(), "pk": "a"})
    replaced = container.replace_item(created["id"], {"id": created["id"], "pk": "a"})
    assert replaced["_etag"] != created["_etag"]


def test_replace_of_a_missing_item(container):
    name = unique("missing")
    with fails(404, 0):
        container.replace_item(name, {"id": name, "pk": "a"})


def test_replace_can_rename(container):
    created = container.create_item({"id": unique(), "pk": "a"})
    other = unique("renamed")
    replaced = container.replace_item(created["id"], {"id": other, "pk": "a", "value": 2})
    assert replaced["id"] == other
    assert replaced["_rid"] == created["_rid"]
    assert container.read_item(other, "a") == replaced
    with fails(404):
        container.read_item(created["id"], "a")
    third = container.create_item({"id": unique(), "pk": "a"})
    with fails(409):
        container.replace_item(third["id"], {"id": other, "pk": "a"})


def test_delete(container, headers):
    created = container.create_item({"id": unique(), "pk": "a"})
    assert container.delete_item(created["id"], "a", response_hook=headers) is None
    assert headers["x-ms-session-token"]
    with fails(404, 0):
        container.read_item(created["id"], "a")
    with fails(404, 0):
        container.delete_item(created["id"], "a")


def test_a_recreated_item_has_a_new_rid(container):
    name = unique()
    first = container.create_item({"id": name, "pk": "a"})
    container.delete_item(name, "a")
    second = container.create_item({"id": name, "pk": "a"})
    assert first["_rid"] != second["_rid"]


def test_a_missing_id_is_refused(container):
    with fails(400, message="id"):
        container.create_item({"pk": "a"})


def test_a_missing_id_can_be_made_by_the_client(container):
    assert len(container.create_item({"pk": "a"}, enable_automatic_id_generation=True)["id"]) == 36


def test_an_id_must_be_a_string(container):
    with pytest.raises(Exception) as caught:
        container.create_item({"id": 5, "pk": "a"})
    assert isinstance(caught.value, TypeError) or caught.value.status_code == 400


def test_no_body_when_none_is_wanted(clients, endpoint, container, headers):
    name = unique()
    created = container.create_item({"id": name, "pk": "a"}, no_response=True, response_hook=headers)
    assert created == {}
    assert headers["etag"]
    upserted = container.upsert_item({"id": name, "pk": "a", "value": 2}, no_response=True)
    assert upserted == {}
    replaced = container.replace_item(name, {"id": name, "pk": "a", "value": 3}, no_response=True)
    assert replaced == {}
    assert container.read_item(name, "a")["value"] == 3


VALUES = {
    "null": None,
    "true": True,
    "zero": 0,
    "negative": -1,
    "fraction": 0.1,
    "small": 5e-324,
    "large": 1.7976931348623157e308,
    "largest exact integer": 9007199254740992,
    "empty string": "",
    "unicode": "naïve 日本語 😀 \u2028\u2029",
    "escapes": 'quote " backslash \\ newline \n tab \t nul \x00',
    "empty list": [],
    "empty object": {},
    "mixed list": [1, "two", None, {"three": [3]}, [[]]],
    "odd names": {"": 1, "a.b": 2, "a/b": 3, "ü": 4, "a b": 5, "$x": 6, "_y": 7},
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_values_survive(container, value):
    created = container.create_item({"id": unique(), "pk": "values", "value": value})
    assert created["value"] == value
    assert container.read_item(created["id"], "values")["value"] == value


def test_deep_nesting(container):
    deep = value = {}
    for _ in range(100):
        value["n"] = {}
        value = value["n"]
    created = container.create_item({"id": unique(), "pk": "deep", "value": deep})
    assert container.read_item(created["id"], "deep")["value"] == deep


def test_nesting_beyond_the_limit_is_refused(container):
    deep = value = {}
    for _ in range(200):
        value["n"] = {}
        value = value["n"]
    with fails(400):
        container.create_item({"id": unique(), "pk": "deep", "value": deep})


def test_many_properties(container):
    body = {"id": unique(), "pk": "wide", **{f"p{i}": i for i in range(2000)}}
    container.create_item(body)
    assert without_system_properties(container.read_item(body["id"], "wide")) == body
