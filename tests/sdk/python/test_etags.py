"""Optimistic concurrency: If-Match and If-None-Match on each operation."""

import pytest
from azure.core import MatchConditions
from conftest import unique
from expectations import fails

STALE = '"00000000-0000-0000-0000-000000000000"'


@pytest.fixture
def item(container):
    return container.create_item({"id": unique(), "pk": "etag", "value": 1})


def test_replace_if_unchanged(container, item):
    body = {"id": item["id"], "pk": "etag", "value": 2}
    replaced = container.replace_item(
        item["id"], body, etag=item["_etag"], match_condition=MatchConditions.IfNotModified
    )
    assert replaced["value"] == 2
    with fails(412, 0, "One of the specified pre-condition is not met"):
        container.replace_item(item["id"], body, etag=item["_etag"], match_condition=MatchConditions.IfNotModified)


def test_replace_if_present(container, item):
    body = {"id": item["id"], "pk": "etag", "value": 2}
    assert container.replace_item(item["id"], body, match_condition=MatchConditions.IfPresent)["value"] == 2


def test_replace_of_a_missing_item_is_not_found_whatever_the_etag(container):
    name = unique("missing")
    with fails(404):
        container.replace_item(
            name, {"id": name, "pk": "etag"}, etag=STALE, match_condition=MatchConditions.IfNotModified
        )


def test_upsert_if_unchanged(container, item):
    body = {"id": item["id"], "pk": "etag", "value": 3}
    upserted = container.upsert_item(body, etag=item["_etag"], match_condition=MatchConditions.IfNotModified)
    assert upserted["value"] == 3
    with fails(412):
        container.upsert_item(body, etag=item["_etag"], match_condition=MatchConditions.IfNotModified)


def test_upsert_of_a_missing_item_ignores_the_etag(container):
    name = unique()
    upserted = container.upsert_item(
        {"id": name, "pk": "etag"}, etag=STALE, match_condition=MatchConditions.IfNotModified
    )
    assert upserted["id"] == name


def test_delete_if_unchanged(container, item):
    with fails(412):
        container.delete_item(item["id"], "etag", etag=STALE, match_condition=MatchConditions.IfNotModified)
    container.delete_item(item["id"], "etag", etag=item["_etag"], match_condition=MatchConditions.IfNotModified)


def test_patch_if_unchanged(container, item):
    operations = [{"op": "incr", "path": "/value", "value": 1}]
    with fails(412):
        container.patch_item(
            item["id"], "etag", operations, etag=STALE, match_condition=MatchConditions.IfNotModified
        )
    patched = container.patch_item(
        item["id"], "etag", operations, etag=item["_etag"], match_condition=MatchConditions.IfNotModified
    )
    assert patched["value"] == 2


def test_read_if_changed(container, item, headers):
    unchanged = container.read_item(
        item["id"], "etag", etag=item["_etag"], match_condition=MatchConditions.IfModified, response_hook=headers
    )
    assert unchanged == {}, "304 has no body"
    assert headers["etag"] == item["_etag"]
    container.replace_item(item["id"], {"id": item["id"], "pk": "etag", "value": 9})
    changed = container.read_item(
        item["id"], "etag", etag=item["_etag"], match_condition=MatchConditions.IfModified
    )
    assert changed["value"] == 9


def test_read_ignores_if_match(container, item):
    read = container.read_item(item["id"], "etag", etag=STALE, match_condition=MatchConditions.IfNotModified)
    assert read["value"] == 1


def test_etags_never_repeat(container):
    name = unique()
    etags = [container.upsert_item({"id": name, "pk": "etag", "n": n})["_etag"] for n in range(20)]
    assert len(set(etags)) == 20
