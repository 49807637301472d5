"""Unique keys: one value per logical partition, on every way of writing."""

import pytest
from azure.cosmos import PartitionKey, exceptions
from conftest import unique
from expectations import fails

MESSAGE = "Unique index constraint violation"


@pytest.fixture(scope="module")
def people(database):
    policy = {"uniqueKeys": [{"paths": ["/email"]}, {"paths": ["/name/first", "/name/last"]}]}
    return database.create_container(unique("people"), PartitionKey(path="/pk"), unique_key_policy=policy)


def person(key, email, first="f", last=None):
    return {"id": unique(), "pk": key, "email": email, "name": {"first": first, "last": last or unique()}}


@pytest.fixture
def key():
    return unique("tenant")


def test_a_second_value_is_a_conflict(people, key):
    people.create_item(person(key, "ada@example.org"))
    with fails(409, message=MESSAGE):
        people.create_item(person(key, "ada@example.org"))
    people.create_item(person(key, "Ada@example.org"))


def test_values_are_unique_per_partition_key(people, key):
    people.create_item(person(key, "ada@example.org"))
    people.create_item(person(key + "-other", "ada@example.org"))


def test_several_paths_count_together(people, key):
    people.create_item(person(key, "1", "Ada", "Lovelace"))
    people.create_item(person(key, "2", "Ada", "Byron"))
    with fails(409):
        people.create_item(person(key, "3", "Ada", "Lovelace"))


def test_missing_values_collide(people, key):
    people.create_item({"id": unique(), "pk": key, "name": {"first": "a", "last": "b"}})
    with fails(409):
        people.create_item({"id": unique(), "pk": key, "name": {"first": "c", "last": "d"}})


def test_replace_upsert_and_patch(people, key):
    people.create_item(person(key, "taken"))
    other = people.create_item(person(key, "free"))
    changed = {**other, "email": "taken"}
    with fails(409, message=MESSAGE):
        people.replace_item(other["id"], changed)
    with fails(409, message=MESSAGE):
        people.upsert_item(changed)
    with fails(409, message=MESSAGE):
        people.patch_item(other["id"], key, [{"op": "set", "path": "/email", "value": "taken"}])
    assert people.read_item(other["id"], key)["email"] == "free"
    people.replace_item(other["id"], {**other, "note": "the same value again is no conflict"})


def test_a_value_is_free_again_after_delete_and_after_change(people, key):
    first = people.create_item(person(key, "one"))
    people.delete_item(first["id"], key)
    second = people.create_item(person(key, "one"))
    people.replace_item(second["id"], {**second, "email": "two"})
    people.create_item(person(key, "one"))


def test_a_renamed_item_keeps_its_value(people, key):
    first = people.create_item(person(key, "one"))
    renamed = people.replace_item(first["id"], {**first, "id": unique("renamed")})
    with fails(409, message=MESSAGE):
        people.create_item(person(key, "one"))
    people.delete_item(renamed["id"], key)
    people.create_item(person(key, "one"))


def test_batches(people, key):
    with pytest.raises(exceptions.CosmosBatchOperationError) as caught:
        people.execute_item_batch(
            [("create", (person(key, "same"),)), ("create", (person(key, "same"),))],
            key,
        )
    assert caught.value.status_code == 409
    assert caught.value.error_index == 1
    people.create_item(person(key, "same"))


def test_kinds_of_values_differ(people, key):
    for email in (1, "1", True, None, 1.5):
        people.create_item(person(key, email))
    with fails(409):
        people.create_item(person(key, 1.0))


def test_the_policy_cannot_change(database, people):
    with fails(400):
        database.client_connection.ReplaceContainer(
            people.container_link,
            {
                "id": people.id,
                "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2},
                "uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/other"]}]},
            },
        )
