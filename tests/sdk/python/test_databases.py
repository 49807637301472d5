"""Databases: create, read, list, delete."""

import pytest
from azure.cosmos import PartitionKey
from conftest import unique
from expectations import fails

PARTITION_KEY = PartitionKey(path="/pk")


@pytest.fixture
def new_database(client):
    made = []

    def make(name=None, **options):
        name = name or unique("db")
        made.append(name)
        return client.create_database(name, **options)

    yield make
    for name in made:
        client.delete_database(name)


def test_create_read_and_delete(client):
    name = unique("db")
    database = client.create_database(name)
    properties = database.read()
    assert properties["id"] == name
    assert properties["_colls"] == "colls/"
    assert properties["_users"] == "users/"
    assert properties["_self"] == f"dbs/{properties['_rid']}/"
    assert len(properties["_rid"]) == 8, "four bytes in base 64"
    assert properties["_etag"].startswith('"') and properties["_etag"].endswith('"')
    assert isinstance(properties["_ts"], int)
    client.delete_database(name)
    with fails(404, 0):
        database.read()
    with fails(404, 0):
        client.delete_database(name)


def test_create_returns_the_properties(client):
    name = unique("db")
    database, properties = client.create_database(name, return_properties=True)
    assert properties["id"] == name
    headers = properties.get_response_headers()
    assert headers["etag"] == properties["_etag"]
    assert float(headers["x-ms-request-charge"]) > 0
    assert headers["x-ms-activity-id"]
    client.delete_database(database.id)


def test_a_second_database_of_the_same_name_is_a_conflict(client, new_database):
    database = new_database()
    with fails(409, message="already exists"):
        client.create_database(database.id)


def test_create_if_not_exists(client, new_database):
    database = new_database()
    again = client.create_database_if_not_exists(database.id)
    assert again.read()["_rid"] == database.read()["_rid"]
    name = unique("db")
    assert client.create_database_if_not_exists(name).read()["id"] == name
    client.delete_database(name)


def test_a_recreated_database_has_a_new_rid(client):
    name = unique("db")
    first = client.create_database(name).read()["_rid"]
    client.delete_database(name)
    second = client.create_database(name).read()["_rid"]
    client.delete_database(name)
    assert first != second


def test_list(client, new_database):
    names = {new_database().id for _ in range(5)}
    listed = {properties["id"] for properties in client.list_databases()}
    assert names <= listed


def test_list_in_pages(client, new_database):
    names = {new_database().id for _ in range(5)}
    seen, pages, token = [], 0, None
    while True:
        # A new pager every time: only the token carries the position.
        pager = client.list_databases(max_item_count=2).by_page(token)
        page = list(next(pager))
        assert len(page) <= 2
        seen += [properties["id"] for properties in page]
        pages += 1
        token = pager.continuation_token
        if not token:
            break
    assert names <= set(seen)
    assert len(seen) == len(set(seen)), "no database twice"
    assert pages >= 3


@pytest.mark.parametrize("name", ["plain", "with space", "dots.and-dashes_", "percent%25", "plus+sign", "日本語", "colls", "dbs"])
def test_names(client, name):
    name = unique(name) if name not in ("colls", "dbs") else name
    database = client.create_database(name)
    try:
        assert database.read()["id"] == name
        container = database.create_container_if_not_exists("docs", PARTITION_KEY)
        assert container.read()["id"] == "docs"
    finally:
        client.delete_database(name)


@pytest.mark.parametrize("name", ["ends with space ", "sl/ash", "back\\slash", "ha#sh", "question?"])
def test_names_the_client_refuses(client, name):
    with pytest.raises(ValueError):
        client.create_database(name)


@pytest.mark.parametrize("name", ["", "n" * 256], ids=["empty", "too long"])
def test_refused_names(client, name):
    with fails(400, message="Ensure to provide a unique non-empty string less than '255' characters."):
        client.create_database(name)


def test_deleting_a_database_deletes_its_containers(client):
    name = unique("db")
    database = client.create_database(name)
    container = database.create_container("c", PARTITION_KEY)
    container.create_item({"id": "a", "pk": "x"})
    client.delete_database(name)
    client.create_database(name)
    assert list(database.list_containers()) == []
    client.delete_database(name)
