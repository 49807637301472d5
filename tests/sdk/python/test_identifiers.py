"""Item ids with unusual characters, on every operation that puts them into a path."""

import pytest
from azure.cosmos import PartitionKey
from conftest import unique
from expectations import fails

IDS = [
    "with space",
    " leading",
    "percent%",
    "percent%20encoded",
    "plus+plus",
    "quote'single",
    'quote"double',
    "ünïcödé",
    "日本語",
    "😀 emoji",
    "semi;colon,comma",
    "equals=and&ampersand",
    "colon:at@",
    "brackets[]{}()<>",
    "star*bang!tilde~",
    "caret^pipe|backtick`",
    "$dollar",
    "..",
    ".",
    "docs",
    "a" * 255,
    "\u00e9 composed e\u0301 decomposed",
]


@pytest.fixture(scope="module")
def odd(database):
    return database.create_container(unique("odd"), PartitionKey(path="/pk"))


# A path of dots is removed by the HTTP library of the client before it is sent.
DOTS = (".", "..")


@pytest.mark.parametrize("name", [name for name in IDS if name not in DOTS])
def test_every_operation(odd, name):
    created = odd.create_item({"id": name, "pk": "x", "value": 1})
    assert created["id"] == name
    assert odd.read_item(name, "x")["id"] == name
    assert odd.upsert_item({"id": name, "pk": "x", "value": 2})["_rid"] == created["_rid"]
    assert odd.replace_item(name, {"id": name, "pk": "x", "value": 3})["value"] == 3
    assert odd.patch_item(name, "x", [{"op": "incr", "path": "/value", "value": 1}])["value"] == 4
    results = odd.execute_item_batch([("read", (name,))], "x")
    assert results[0]["resourceBody"]["id"] == name
    odd.delete_item(name, "x")
    with fails(404):
        odd.read_item(name, "x")


def test_composed_and_decomposed_are_different(odd):
    odd.create_item({"id": "\u00e9", "pk": "x"})
    odd.create_item({"id": "e\u0301", "pk": "x"})


def test_ids_are_case_sensitive(odd):
    odd.create_item({"id": "Case", "pk": "x"})
    with fails(404):
        odd.read_item("case", "x")


@pytest.mark.parametrize("name", ["trailing ", "sl/ash", "back\\slash", "ha#sh", "question?"])
def test_ids_the_client_refuses(odd, name):
    with pytest.raises(ValueError):
        odd.create_item({"id": name, "pk": "x"})


def test_the_longest_id(odd):
    name = "n" * 1023
    odd.create_item({"id": name, "pk": "x"})
    assert odd.read_item(name, "x")["id"] == name
    with fails(400):
        odd.create_item({"id": "n" * 1024, "pk": "x"})


def test_an_empty_id(odd):
    with pytest.raises(Exception) as caught:
        odd.create_item({"id": "", "pk": "x"})
    assert getattr(caught.value, "status_code", 400) == 400
