"""Reading all items in pages, feed ranges and session tokens."""

import base64
import json

import pytest
from azure.cosmos import PartitionKey
from conftest import unique
from expectations import fails


@pytest.fixture(scope="module", params=[400, 30000], ids=["one partition", "many partitions"])
def filled(request, database):
    container = database.create_container(
        unique("feed"), PartitionKey(path="/pk"), offer_throughput=request.param
    )
    for number in range(25):
        container.create_item({"id": f"item {number}", "pk": f"key {number % 7}", "number": number})
    return container


def test_everything(filled):
    items = list(filled.read_all_items())
    assert sorted(item["number"] for item in items) == list(range(25))
    headers = filled.client_connection.last_response_headers
    assert float(headers["x-ms-request-charge"]) > 0
    assert headers["x-ms-session-token"]


@pytest.mark.parametrize("size", [1, 4, 25, 100])
def test_pages(filled, size):
    pages = [list(page) for page in filled.read_all_items(max_item_count=size).by_page()]
    assert all(len(page) <= size for page in pages)
    assert sorted(item["number"] for page in pages for item in page) == list(range(25))


def test_pages_resume_from_a_token_alone(filled):
    seen, token = [], None
    for _ in range(100):
        pager = filled.read_all_items(max_item_count=3).by_page(token)
        seen += [item["number"] for item in next(pager)]
        token = pager.continuation_token
        if not token:
            break
    assert sorted(seen) == list(range(25))


def test_a_token_does_not_lose_items_to_deletes_or_writes(new_container):
    container = new_container()
    for number in range(10):
        container.create_item({"id": f"{number}", "pk": "x"})
    pager = container.read_all_items(max_item_count=4).by_page()
    first = [item["id"] for item in next(pager)]
    token = pager.continuation_token
    for name in first:
        container.delete_item(name, "x")
    rest = [item["id"] for page in container.read_all_items(max_item_count=4).by_page(token) for item in page]
    assert sorted(first + rest) == [f"{number}" for number in range(10)]


def test_a_spoilt_token_is_refused(filled):
    with fails(400):
        list(next(filled.read_all_items(max_item_count=3).by_page("no such token")))


def test_an_empty_container(new_container):
    assert list(new_container().read_all_items()) == []


def test_large_items_end_the_page(new_container):
    container = new_container()
    for number in range(6):
        container.create_item({"id": f"{number}", "pk": "x", "filler": "f" * 1_000_000})
    pages = [list(page) for page in container.read_all_items(max_item_count=100).by_page()]
    assert sum(len(page) for page in pages) == 6
    assert len(pages) >= 2, "a page ends at 4 MB"


def decoded(feed_range):
    return json.loads(base64.b64decode(feed_range)) if isinstance(feed_range, str) else feed_range


def test_feed_ranges_cover_everything(filled):
    ranges = sorted((decoded(one)["Range"] for one in filled.read_feed_ranges()), key=lambda one: one["min"])
    assert ranges[0]["min"] == ""
    assert ranges[-1]["max"] == "FF"
    for left, right in zip(ranges, ranges[1:]):
        assert left["max"] == right["min"]


def test_the_feed_range_of_a_key_lies_in_one_partition(filled):
    for number in range(7):
        own = filled.feed_range_from_partition_key(f"key {number}")
        containing = [one for one in filled.read_feed_ranges() if filled.is_feed_range_subset(one, own)]
        assert len(containing) == 1


def test_the_feed_range_of_a_key_prefix(new_container):
    container = new_container(PartitionKey(path=["/a", "/b", "/c"], kind="MultiHash"))
    prefix = container.feed_range_from_partition_key(["x"])
    full = container.feed_range_from_partition_key(["x", "y", "z"])
    assert container.is_feed_range_subset(prefix, full)


def test_session_tokens_grow(container, headers):
    numbers = []
    for number in range(5):
        container.upsert_item({"id": "session", "pk": "session", "n": number}, response_hook=headers)
        token = headers["x-ms-session-token"]
        range_id, _, value = token.partition(":")
        assert range_id.isdigit()
        numbers.append(int(value.split("#")[1]))
    assert numbers == sorted(set(numbers))


def test_a_write_can_be_read_in_another_client_with_its_token(clients, endpoint, container, headers):
    name = unique()
    container.create_item({"id": name, "pk": "session"}, response_hook=headers)
    database = container.container_link.split("/")[1]
    other = clients.open(endpoint).get_database_client(database).get_container_client(container.id)
    assert other.read_item(name, "session", session_token=headers["x-ms-session-token"])["id"] == name


def test_a_malformed_session_token_is_refused(container):
    name = unique()
    container.create_item({"id": name, "pk": "session"})
    with fails(400):
        container.read_item(name, "session", session_token="nonsense")


def test_the_latest_session_token(new_container, headers):
    container = new_container()
    tokens = []
    own = container.feed_range_from_partition_key("x")
    for number in range(3):
        container.upsert_item({"id": "a", "pk": "x", "n": number}, response_hook=headers)
        tokens.append((own, headers["x-ms-session-token"]))
    assert container.get_latest_session_token(tokens, own) == tokens[-1][1]


@pytest.mark.parametrize("key", ["one", 5, None])
def test_delete_all_items_of_a_key(new_container, key):
    container = new_container(offer_throughput=30000)
    for number in range(20):
        container.create_item({"id": f"{number}", "pk": key})
        container.create_item({"id": f"{number}", "pk": "kept"})
    container.delete_all_items_by_partition_key(key)
    assert {item["pk"] for item in container.read_all_items()} == {"kept"}
    with fails(404):
        container.read_item("3", key)
    container.create_item({"id": "3", "pk": key})
    assert container.read_item("3", key)["id"] == "3"


def test_delete_all_items_of_a_hierarchical_key(new_container):
    container = new_container(PartitionKey(path=["/a", "/b"], kind="MultiHash"))
    for name in ("1", "2"):
        container.create_item({"id": name, "a": "x", "b": "y"})
        container.create_item({"id": name, "a": "x", "b": "z"})
    container.delete_all_items_by_partition_key(["x", "y"])
    assert [item["b"] for item in container.read_all_items()] == ["z", "z"]
    with fails(400):
        container.delete_all_items_by_partition_key(["x"])


def test_conflicts_are_an_empty_feed(container):
    assert list(container.list_conflicts()) == []
