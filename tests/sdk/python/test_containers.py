"""Containers: definitions of every kind, as sent and as returned; replace; refused definitions."""

import pytest
from azure.cosmos import PartitionKey
from conftest import unique
from expectations import fails

DEFAULT_INDEXING_POLICY = {
    "indexingMode": "consistent",
    "automatic": True,
    "includedPaths": [{"path": "/*"}],
    "excludedPaths": [{"path": '/"_etag"/?'}],
}


def test_create_read_and_delete(database):
    name = unique("c")
    container = database.create_container(name, PartitionKey(path="/pk"))
    properties = container.read()
    assert properties["id"] == name
    assert properties["partitionKey"] == {"paths": ["/pk"], "kind": "Hash", "version": 2}
    assert properties["indexingPolicy"] == DEFAULT_INDEXING_POLICY
    assert properties["conflictResolutionPolicy"] == {
        "mode": "LastWriterWins",
        "conflictResolutionPath": "/_ts",
        "conflictResolutionProcedure": "",
    }
    assert properties["geospatialConfig"] == {"type": "Geography"}
    assert "defaultTtl" not in properties
    for feed in ("docs", "sprocs", "triggers", "udfs", "conflicts"):
        assert properties[f"_{feed}"] == f"{feed}/"
    assert len(properties["_rid"]) == 12, "eight bytes in base 64"
    assert properties["_self"].endswith(f"/colls/{properties['_rid']}/")
    database.delete_container(name)
    with fails(404, 0):
        container.read()
    with fails(404, 0):
        database.delete_container(name)


def test_a_second_container_of_the_same_name_is_a_conflict(database, new_container):
    container = new_container()
    with fails(409, message="already exists"):
        database.create_container(container.id, PartitionKey(path="/other"))


def test_create_if_not_exists(database, new_container):
    container = new_container()
    same = database.create_container_if_not_exists(container.id, PartitionKey(path="/pk"))
    assert same.read()["_rid"] == container.read()["_rid"]


def test_a_container_in_a_missing_database(client):
    missing = client.get_database_client(unique("missing"))
    with fails(404):
        missing.create_container("c", PartitionKey(path="/pk"))


def test_list(database, new_container):
    names = {new_container().id for _ in range(4)}
    assert names <= {properties["id"] for properties in database.list_containers()}
    pages = [list(page) for page in database.list_containers(max_item_count=2).by_page()]
    assert all(len(page) <= 2 for page in pages)
    listed = [properties["id"] for page in pages for properties in page]
    assert names <= set(listed)
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("paths", [["/tenant", "/user"], ["/tenant", "/user", "/session"]])
def test_hierarchical_keys(new_container, paths):
    container = new_container(PartitionKey(path=paths, kind="MultiHash"))
    assert container.read()["partitionKey"] == {"paths": paths, "kind": "MultiHash", "version": 2}


def test_a_hierarchical_key_of_one_level(new_container):
    container = new_container(PartitionKey(path=["/tenant"], kind="MultiHash"))
    assert container.read()["partitionKey"]["paths"] == ["/tenant"]


@pytest.mark.parametrize("path", ["/a/b", '/"with space"', "/'quoted'/x", "/id", "/a-b"])
def test_partition_key_paths(new_container, path):
    container = new_container(PartitionKey(path=path))
    assert container.read()["partitionKey"]["paths"] == [path]


def test_version_one_keys(new_container):
    container = new_container(PartitionKey(path="/pk", version=1))
    key = container.read()["partitionKey"]
    assert key["paths"] == ["/pk"]
    assert key.get("version", 1) == 1
    container.create_item({"id": "a", "pk": "x"})
    assert container.read_item("a", "x")["pk"] == "x"


@pytest.mark.parametrize(
    "partition_key, message",
    [
        (PartitionKey(path=["/a", "/b", "/c", "/d"], kind="MultiHash"), "Too many partition key paths (4) specified"),
        (PartitionKey(path=["/a", "/a"], kind="MultiHash"), None),
        (PartitionKey(path="no-slash"), None),
        (PartitionKey(path="/_ts"), None),
        (PartitionKey(path="/a/[]/b"), None),
    ],
)
def test_refused_partition_keys(database, partition_key, message):
    with fails(400, message=message):
        database.create_container(unique("bad"), partition_key)


def test_a_hash_key_with_several_paths_is_refused(database):
    with fails(400):
        database.create_container(unique("bad"), {"paths": ["/a", "/b"], "kind": "Hash", "version": 2})


def test_a_hierarchical_key_of_version_one_is_refused(database):
    with fails(400):
        database.create_container(unique("bad"), {"paths": ["/a", "/b"], "kind": "MultiHash", "version": 1})


def test_time_to_live(new_container):
    assert new_container(default_ttl=-1).read()["defaultTtl"] == -1
    assert new_container(default_ttl=30).read()["defaultTtl"] == 30


@pytest.mark.parametrize("ttl", [0, -2, 2147483648])
def test_refused_times_to_live(database, ttl):
    with fails(400):
        # Zero is left out by the client unless it is written into the body, so the body is written.
        database.client_connection.CreateContainer(
            database.database_link,
            {"id": unique("bad"), "partitionKey": {"paths": ["/pk"], "kind": "Hash"}, "defaultTtl": ttl},
        )


def test_unique_key_policy(new_container):
    policy = {"uniqueKeys": [{"paths": ["/email"]}, {"paths": ["/first", "/address/zip"]}]}
    assert new_container(unique_key_policy=policy).read()["uniqueKeyPolicy"] == policy


def test_conflict_resolution_policy(new_container):
    policy = {"mode": "LastWriterWins", "conflictResolutionPath": "/when"}
    returned = new_container(conflict_resolution_policy=policy).read()["conflictResolutionPolicy"]
    assert returned["mode"] == "LastWriterWins"
    assert returned["conflictResolutionPath"] == "/when"


def test_computed_properties(new_container):
    computed = [{"name": "cp_lower", "query": "SELECT VALUE LOWER(c.name) FROM c"}]
    assert new_container(computed_properties=computed).read()["computedProperties"] == computed


INDEXING_POLICIES = {
    "everything": DEFAULT_INDEXING_POLICY,
    "some paths": {
        "indexingMode": "consistent",
        "automatic": True,
        "includedPaths": [{"path": "/name/?"}, {"path": "/tags/[]/?"}],
        "excludedPaths": [{"path": "/*"}, {"path": '/"_etag"/?'}],
    },
    "composite": {
        **DEFAULT_INDEXING_POLICY,
        "compositeIndexes": [
            [{"path": "/a", "order": "ascending"}, {"path": "/b", "order": "descending"}],
            [{"path": "/a", "order": "ascending"}, {"path": "/c", "order": "ascending"}],
        ],
    },
    "spatial": {
        **DEFAULT_INDEXING_POLICY,
        "spatialIndexes": [{"path": "/place/*", "types": ["Point", "LineString", "Polygon", "MultiPolygon"]}],
    },
}


@pytest.mark.parametrize("policy", INDEXING_POLICIES.values(), ids=INDEXING_POLICIES.keys())
def test_indexing_policies(new_container, policy):
    returned = new_container(indexing_policy=policy).read()["indexingPolicy"]
    for name, value in policy.items():
        if name in ("includedPaths", "excludedPaths"):
            assert {p["path"] for p in value} == {p["path"] for p in returned[name]}
        elif name == "spatialIndexes":
            assert {(p["path"], *sorted(p["types"])) for p in value} == {
                (p["path"], *sorted(p["types"])) for p in returned[name]
            }
        else:
            assert returned[name] == value


def test_indexing_none(new_container):
    policy = {"indexingMode": "none", "automatic": False}
    returned = new_container(indexing_policy=policy).read()["indexingPolicy"]
    assert returned["indexingMode"] == "none"
    assert returned["automatic"] is False


def test_the_etag_exclusion_is_added(new_container):
    policy = {"indexingMode": "consistent", "includedPaths": [{"path": "/*"}], "excludedPaths": []}
    returned = new_container(indexing_policy=policy).read()["indexingPolicy"]
    assert {"path": '/"_etag"/?'} in returned["excludedPaths"]


@pytest.mark.parametrize(
    "policy",
    [
        {"indexingMode": "consistent", "includedPaths": [{"path": "/a/?"}], "excludedPaths": [{"path": "/b/?"}]},
        {"indexingMode": "sometimes"},
        {**DEFAULT_INDEXING_POLICY, "spatialIndexes": [{"path": "/p/*", "types": []}]},
        {**DEFAULT_INDEXING_POLICY, "includedPaths": [{"path": "no-slash"}, {"path": "/*"}]},
    ],
    ids=["no root", "unknown mode", "no spatial types", "path without slash"],
)
def test_refused_indexing_policies(database, policy):
    with fails(400):
        database.create_container(unique("bad"), PartitionKey(path="/pk"), indexing_policy=policy)


def test_replace(database, new_container):
    container = new_container()
    before = container.read()
    policy = {
        "indexingMode": "consistent",
        "automatic": True,
        "includedPaths": [{"path": "/*"}],
        "excludedPaths": [{"path": "/big/*"}, {"path": '/"_etag"/?'}],
    }
    database.replace_container(container, PartitionKey(path="/pk"), indexing_policy=policy, default_ttl=60)
    after = container.read()
    assert after["defaultTtl"] == 60
    assert {"path": "/big/*"} in after["indexingPolicy"]["excludedPaths"]
    assert after["_rid"] == before["_rid"]
    assert after["_etag"] != before["_etag"]
    database.replace_container(container, PartitionKey(path="/pk"))
    assert "defaultTtl" not in container.read()


def test_replace_keeps_items(database, new_container):
    container = new_container()
    container.create_item({"id": "a", "pk": "x"})
    database.replace_container(container, PartitionKey(path="/pk"), default_ttl=-1)
    assert container.read_item("a", "x")["id"] == "a"


def test_replace_cannot_change_the_partition_key(database, new_container):
    container = new_container()
    with fails(400):
        database.replace_container(container, PartitionKey(path="/other"))


def test_replace_of_a_missing_container(database):
    with fails(404):
        database.replace_container(unique("missing"), PartitionKey(path="/pk"))


def test_quota_and_index_progress(new_container, headers):
    container = new_container()
    container.read(populate_quota_info=True, response_hook=headers)
    assert headers["x-ms-documentdb-collection-index-transformation-progress"] == "100"
    assert "documentsCount=" in headers["x-ms-resource-usage"]
    assert "collectionSize=" in headers["x-ms-resource-quota"]


def test_partition_statistics(new_container):
    container = new_container()
    container.create_item({"id": "a", "pk": "x"})
    statistics = container.read(populate_partition_key_range_statistics=True)["statistics"]
    assert sum(partition["documentCount"] for partition in statistics) >= 0
    assert statistics[0]["id"] == "0"


@pytest.mark.parametrize("name", ["with space", "dots.and-dashes_", "percent%25", "plus+sign", "ünï", "docs", "colls"])
def test_names(database, name):
    container = database.create_container(name, PartitionKey(path="/pk"))
    try:
        assert container.read()["id"] == name
        container.create_item({"id": "a", "pk": "x"})
        assert container.read_item("a", "x")["id"] == "a"
        assert [item["id"] for item in container.read_all_items()] == ["a"]
    finally:
        database.delete_container(name)


def test_a_recreated_container_is_empty_and_found_by_an_old_client(database):
    name = unique("again")
    container = database.create_container(name, PartitionKey(path="/pk"))
    container.create_item({"id": "a", "pk": "x"})
    first = container.read()["_rid"]
    database.delete_container(name)
    recreated = database.create_container(name, PartitionKey(path="/pk"))
    assert recreated.read()["_rid"] != first
    with fails(404, 0):
        container.read_item("a", "x")
    container.create_item({"id": "a", "pk": "x"})
    database.delete_container(name)
