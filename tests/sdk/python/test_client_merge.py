"""Queries that the client merges by itself, as it does with the service: it is told to (400, sub-status 1004), its own
rules hold, and the rows stay right when its map of the ranges grows old."""

import orrery_server
import pytest
from azure.cosmos import PartitionKey
from blocking import Blocking
from conftest import EMULATOR_KEY, unique

ITEMS = 600
KEYS = 20
SORTED = "SELECT c.id, c.n FROM c WHERE c.n >= 0 ORDER BY c.n"


@pytest.fixture(scope="module")
def own_server():
    server = orrery_server.start(["--in-memory", "--partitions-at-creation", "4"])
    yield server
    server.stop()


@pytest.fixture
def place(clients, own_server):
    """A container whose partitions this test alone changes, and its database."""
    client = clients.open(own_server.endpoint)
    database = client.create_database(unique("db"))
    container = database.create_container(unique("c"), PartitionKey(path="/pk"))
    for key in range(KEYS):
        items = [{"id": str(n), "pk": f"k{key}", "n": n} for n in range(key, ITEMS, KEYS)]
        container.execute_item_batch([("create", (item,)) for item in items], partition_key=f"k{key}")
    yield own_server, database, container
    client.delete_database(database.id)


def rows(container, text, **options):
    if not isinstance(container, Blocking):
        # The asynchronous client sends this by itself.
        options["enable_cross_partition_query"] = True
    return container.query_items(text, **options)


def query(container, text=SORTED, **options):
    return (row["n"] for row in rows(container, text, **options))


def numbers(container, **options):
    return list(query(container, **options))


def reshape(place, how, **body):
    server, database, container = place
    names = {"database": database.id, "container": container.id}
    return orrery_server.control(server, EMULATOR_KEY, f"partitions/{how}", {**names, **body})


def ranges(container):
    found = container.client_connection._ReadPartitionKeyRanges(container.container_link)
    return sorted(found, key=lambda range_: range_["minInclusive"])


def known_ranges(container):
    """What the client remembers of the container's ranges, if it has asked for them."""
    known = container.client_connection._routing_map_provider._collection_routing_map_by_item
    return known.get(container.container_link)


def test_the_client_merges_what_it_can(place):
    _, _, container = place
    assert known_ranges(container) is None
    # Nothing to merge, and groups, which this client does not merge.
    assert len(list(query(container, "SELECT c.n FROM c"))) == ITEMS
    counts = query(container, "SELECT c.pk, COUNT(1) AS n FROM c GROUP BY c.pk")
    assert list(counts) == [ITEMS / KEYS] * KEYS
    assert known_ranges(container) is None
    assert numbers(container) == list(range(ITEMS))
    assert known_ranges(container) is not None
    assert numbers(container, max_item_count=100) == list(range(ITEMS))
    for text, expected in [
        ("SELECT TOP 2 c.n FROM c WHERE c.n > 7 ORDER BY c.n", [8, 9]),
        ("SELECT c.n FROM c WHERE c.n > 7 ORDER BY c.n OFFSET 1 LIMIT 1", [9]),
        ("SELECT c.n FROM c WHERE c.n IN (7, 3) ORDER BY c.n DESC", [7, 3]),
        ("SELECT DISTINCT c.n FROM c WHERE c.n < 3 ORDER BY c.n", [0, 1, 2]),
    ]:
        assert list(query(container, text)) == expected, text


def test_the_clients_own_rules_hold(place):
    _, _, container = place
    # The maximum of nothing.
    assert list(rows(container, "SELECT VALUE MAX(c.missing) FROM c")) == [None]
    assert list(rows(container, "SELECT VALUE COUNT(1) FROM c")) == [ITEMS]
    # Values of several types in one order.
    for number, value in enumerate([True, "text"]):
        container.create_item({"id": f"other-{number}", "pk": f"o{number}", "n": value})
    with pytest.raises(ValueError):
        list(query(container, "SELECT c.n FROM c ORDER BY c.n"))


def test_a_map_that_has_grown_old_gives_every_row_once(place):
    _, _, container = place
    expected = list(range(ITEMS))
    assert numbers(container) == expected
    # The first of the ranges goes, the others stay: told of it, the client would ask these twice.
    reshape(place, "split", partition=ranges(container)[0]["id"])
    assert numbers(container) == expected
    # The last goes: here the client learns of it, and looks at all of them again.
    reshape(place, "split", partition=ranges(container)[-1]["id"])
    assert numbers(container) == expected
    # Its children and others in the middle go once more, and two come together.
    for at in (-1, 2, 0):
        reshape(place, "split", partition=ranges(container)[at]["id"])
        assert numbers(container) == expected
    now = ranges(container)
    reshape(place, "merge", partitions=[now[3]["id"], now[4]["id"]])
    assert numbers(container) == expected
    reshape(place, "merge", partitions=[range_["id"] for range_ in ranges(container)[-2:]])
    assert numbers(container) == expected


def test_ranges_that_go_between_two_pages(place):
    _, _, container = place
    rows = query(container)
    found = [next(rows) for _ in range(10)]
    for at in (0, -1, 1):
        reshape(place, "split", partition=ranges(container)[at]["id"])
        found.extend(next(rows) for _ in range(60))
    found.extend(rows)
    assert found == list(range(ITEMS))
