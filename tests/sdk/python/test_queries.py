"""Item and metadata queries as the SDK sends them."""

import pytest
from azure.cosmos import PartitionKey
from conftest import unique
from expectations import fails

pytestmark = pytest.mark.query


@pytest.fixture(scope="module", params=[400, 30000], ids=["one partition", "many partitions"])
def filled(request, database):
    container = database.create_container(
        unique("query"), PartitionKey(path="/pk"), offer_throughput=request.param
    )
    for number in range(30):
        container.create_item(
            {"id": f"{number:02}", "pk": f"key {number % 6}", "number": number, "category": number % 3, "tags": [number]}
        )
    return container


def rows(container, query, **options):
    options.setdefault("enable_cross_partition_query", True)
    if hasattr(container, "_loop"):
        options.pop("enable_cross_partition_query", None)
    return list(container.query_items(query, **options))


def test_in_one_logical_partition(filled):
    found = list(filled.query_items("SELECT * FROM c", partition_key="key 1"))
    assert sorted(item["number"] for item in found) == [1, 7, 13, 19, 25]


def test_across_partitions(filled):
    assert len(rows(filled, "SELECT * FROM c")) == 30
    assert sorted(rows(filled, "SELECT VALUE c.number FROM c WHERE c.number >= 25")) == [25, 26, 27, 28, 29]


def test_parameters(filled):
    found = rows(
        filled,
        "SELECT VALUE c.id FROM c WHERE c.number = @n AND c.pk = @pk",
        parameters=[{"name": "@n", "value": 7}, {"name": "@pk", "value": "key 1"}],
    )
    assert found == ["07"]


@pytest.mark.parametrize(
    "query, expected",
    [
        ("SELECT VALUE c.number FROM c ORDER BY c.number", list(range(30))),
        ("SELECT VALUE c.number FROM c ORDER BY c.number DESC", list(range(29, -1, -1))),
        ("SELECT TOP 3 VALUE c.number FROM c ORDER BY c.number", [0, 1, 2]),
        ("SELECT VALUE c.number FROM c ORDER BY c.number OFFSET 5 LIMIT 3", [5, 6, 7]),
        ("SELECT VALUE COUNT(1) FROM c", [30]),
        ("SELECT VALUE SUM(c.number) FROM c", [435]),
        ("SELECT VALUE AVG(c.number) FROM c", [14.5]),
        ("SELECT VALUE MIN(c.number) FROM c", [0]),
        ("SELECT VALUE MAX(c.number) FROM c", [29]),
        ("SELECT DISTINCT VALUE c.category FROM c ORDER BY c.category", [0, 1, 2]),
        ("SELECT VALUE t FROM c JOIN t IN c.tags WHERE t < 3 ORDER BY t", None),
    ],
)
def test_merged_by_the_client(filled, query, expected):
    found = rows(filled, query)
    if expected is not None:
        assert found == expected
    else:
        assert sorted(found) == [0, 1, 2]


def test_pages(filled):
    seen, token = [], None
    for _ in range(100):
        pager = filled.query_items("SELECT * FROM c", partition_key="key 2", max_item_count=2).by_page(token)
        page = list(next(pager))
        assert len(page) <= 2
        seen += [item["number"] for item in page]
        token = pager.continuation_token
        if not token:
            break
    assert sorted(seen) == [2, 8, 14, 20, 26]


def test_feed_ranges(filled):
    seen = []
    for feed_range in filled.read_feed_ranges():
        seen += [item["number"] for item in filled.query_items("SELECT * FROM c", feed_range=feed_range)]
    assert sorted(seen) == list(range(30))


def test_read_items(filled):
    wanted = [(f"{number:02}", f"key {number % 6}") for number in (3, 17, 29, 0)]
    found = filled.read_items(wanted + [("missing", "key 1")])
    assert sorted(item["id"] for item in found) == ["00", "03", "17", "29"]


def test_read_many_items_of_hierarchical_keys(new_container):
    # The client sends one condition of three terms for each item.
    container = new_container(PartitionKey(path=["/a", "/b"], kind="MultiHash"))
    names = [f"{number}" for number in range(200)]
    for name in names:
        container.create_item({"id": name, "a": "x", "b": name})
    found = container.read_items([(name, ["x", name]) for name in names])
    assert sorted(item["id"] for item in found) == sorted(names)


def test_a_renamed_item_is_found_once(new_container):
    container = new_container()
    container.create_item({"id": "old", "pk": "x", "number": 1})
    container.replace_item("old", {"id": "new", "pk": "x", "number": 2})
    assert rows(container, "SELECT VALUE c.id FROM c WHERE c.number IN (1, 2)") == ["new"]
    assert rows(container, "SELECT VALUE c.id FROM c WHERE c.number = 1") == []
    assert rows(container, "SELECT VALUE c.number FROM c WHERE c.id = 'old'") == []
    assert rows(container, "SELECT VALUE COUNT(1) FROM c") == [1]


def test_a_syntax_error(filled):
    with fails(400, message="Syntax error"):
        rows(filled, "SELECT FROM WHERE")


def test_prefix_of_a_hierarchical_key(new_container):
    container = new_container(PartitionKey(path=["/a", "/b"], kind="MultiHash"), offer_throughput=30000)
    for a in ("x", "y"):
        for b in ("1", "2"):
            container.create_item({"id": a + b, "a": a, "b": b})
    found = list(container.query_items("SELECT VALUE c.id FROM c", partition_key=["x"]))
    assert sorted(found) == ["x1", "x2"]
    assert list(container.query_items("SELECT VALUE c.id FROM c", partition_key=["y", "2"])) == ["y2"]


def test_databases_containers_and_users(client, database, new_container):
    by_id = "SELECT * FROM root r WHERE r.id=@id"
    parameters = [{"name": "@id", "value": database.id}]
    assert [one["id"] for one in client.query_databases(by_id, parameters=parameters)] == [database.id]
    container = new_container()
    parameters = [{"name": "@id", "value": container.id}]
    assert [one["id"] for one in database.query_containers(by_id, parameters=parameters)] == [container.id]
    user = database.create_user({"id": unique("user")})
    parameters = [{"name": "@id", "value": user.id}]
    assert [one["id"] for one in database.query_users(by_id, parameters=parameters)] == [user.id]
    database.delete_user(user.id)
