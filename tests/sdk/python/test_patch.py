"""Partial updates: each operation on objects and arrays, conditions, refusals."""

import pytest
from conftest import unique
from expectations import fails, without_system_properties

KEY = "patch"
START = {"text": "a", "number": 5, "list": [1, 2, 3], "inner": {"x": 1, "y": [10]}, "nothing": None}

SUCCESSES = {
    "add a property": ([("add", "/new", 1)], {**START, "new": 1}),
    "add over a property": ([("add", "/text", "b")], {**START, "text": "b"}),
    "add a nested property": ([("add", "/inner/z", [])], {**START, "inner": {"x": 1, "y": [10], "z": []}}),
    "add into an array": ([("add", "/list/1", 9)], {**START, "list": [1, 9, 2, 3]}),
    "add at the end by index": ([("add", "/list/3", 9)], {**START, "list": [1, 2, 3, 9]}),
    "add at the end by dash": ([("add", "/list/-", 9)], {**START, "list": [1, 2, 3, 9]}),
    "add null": ([("add", "/new", None)], {**START, "new": None}),
    "set a property": ([("set", "/new", {"a": [1]})], {**START, "new": {"a": [1]}}),
    "set over a property": ([("set", "/number", "six")], {**START, "number": "six"}),
    "set an element": ([("set", "/list/1", 9)], {**START, "list": [1, 9, 3]}),
    "set at the end by dash": ([("set", "/list/-", 9)], {**START, "list": [1, 2, 3, 9]}),
    "replace a property": ([("replace", "/text", "b")], {**START, "text": "b"}),
    "replace an element": ([("replace", "/list/0", "z")], {**START, "list": ["z", 2, 3]}),
    "remove a property": ([("remove", "/nothing")], {k: v for k, v in START.items() if k != "nothing"}),
    "remove a nested property": ([("remove", "/inner/x")], {**START, "inner": {"y": [10]}}),
    "remove an element": ([("remove", "/list/0")], {**START, "list": [2, 3]}),
    "incr": ([("incr", "/number", 3)], {**START, "number": 8}),
    "incr by a negative fraction": ([("incr", "/number", -0.5)], {**START, "number": 4.5}),
    "incr an element": ([("incr", "/inner/y/0", 1)], {**START, "inner": {"x": 1, "y": [11]}}),
    "incr creates": ([("incr", "/count", 7)], {**START, "count": 7}),
    "move a property": (
        [("move", "/renamed", "/text")],
        {**{k: v for k, v in START.items() if k != "text"}, "renamed": "a"},
    ),
    "move into an object": (
        [("move", "/inner/n", "/number")],
        {**{k: v for k, v in START.items() if k != "number"}, "inner": {"x": 1, "y": [10], "n": 5}},
    ),
    "escaped names": ([("add", "/a~1b", 1), ("add", "/c~0d", 2)], {**START, "a/b": 1, "c~d": 2}),
    "a number as property name": ([("add", "/inner/0", "zero")], {**START, "inner": {"x": 1, "y": [10], "0": "zero"}}),
    "operations see earlier ones": (
        [("add", "/box", {}), ("add", "/box/list", []), ("add", "/box/list/-", 1), ("incr", "/box/list/0", 1)],
        {**START, "box": {"list": [2]}},
    ),
    "ten operations": ([("incr", "/number", 1)] * 10, {**START, "number": 15}),
    "ttl": ([("set", "/ttl", 1000)], {**START, "ttl": 1000}),
}

REFUSALS = {
    "replace of a missing property": [("replace", "/missing", 1)],
    "replace of a missing element": [("replace", "/list/3", 1)],
    "remove of a missing property": [("remove", "/missing")],
    "remove of a missing element": [("remove", "/list/3")],
    "add beyond the end": [("add", "/list/4", 1)],
    "set beyond the end": [("set", "/list/3", 1)],
    "add below a missing parent": [("add", "/no/such/parent", 1)],
    "set below a scalar": [("set", "/text/x", 1)],
    "incr of a string": [("incr", "/text", 1)],
    "incr by a string": [("incr", "/number", "1")],
    "move of a missing property": [("move", "/to", "/missing")],
    "move below itself": [("move", "/inner/sub", "/inner")],
    "the id": [("set", "/id", "other")],
    "the partition key": [("set", "/pk", "other")],
    "a system property": [("set", "/_etag", "x")],
    "an unknown operation": [("copy", "/a", 1)],
    "no operations": [],
    "eleven operations": [("incr", "/number", 1)] * 11,
    "a path without slash": [("set", "text", 1)],
}


def operation(op, path, *rest):
    if op == "move":
        return {"op": op, "from": rest[0], "path": path}
    return {"op": op, "path": path, **({"value": rest[0]} if rest else {})}


@pytest.fixture
def item(container):
    return container.create_item({"id": unique(), "pk": KEY, **START})


@pytest.mark.parametrize("operations, expected", SUCCESSES.values(), ids=SUCCESSES.keys())
def test_patch(container, item, operations, expected):
    patched = container.patch_item(item["id"], KEY, [operation(*each) for each in operations])
    assert without_system_properties(patched) == {"id": item["id"], "pk": KEY, **expected}
    assert patched["_rid"] == item["_rid"]
    assert patched["_etag"] != item["_etag"]
    assert container.read_item(item["id"], KEY) == patched


@pytest.mark.parametrize("operations", REFUSALS.values(), ids=REFUSALS.keys())
def test_refused(container, item, operations):
    with fails(400):
        container.patch_item(item["id"], KEY, [operation(*each) for each in operations])
    assert container.read_item(item["id"], KEY) == item


def test_a_failing_operation_undoes_the_earlier_ones(container, item):
    with fails(400):
        container.patch_item(item["id"], KEY, [operation("incr", "/number", 1), operation("remove", "/missing")])
    assert container.read_item(item["id"], KEY)["number"] == 5


def test_integers_stay_integers(container, item):
    patched = container.patch_item(item["id"], KEY, [operation("incr", "/number", 2)])
    assert type(patched["number"]) is int


def test_a_missing_item(container):
    with fails(404):
        container.patch_item(unique("missing"), KEY, [operation("set", "/a", 1)])


def test_condition(container, item):
    patched = container.patch_item(
        item["id"], KEY, [operation("incr", "/number", 1)], filter_predicate="from c where c.number = 5"
    )
    assert patched["number"] == 6
    with fails(412):
        container.patch_item(
            item["id"], KEY, [operation("incr", "/number", 1)], filter_predicate="from c where c.number = 5"
        )
    assert container.read_item(item["id"], KEY)["number"] == 6


@pytest.mark.parametrize(
    "condition, holds",
    [
        ('from c where c["inner"].x < 2 and IS_NULL(c.nothing)', True),
        ("from root r where r.text = 'a' or r.missing = 1", True),
        ("from c where ARRAY_CONTAINS(c.list, 3)", True),
        ("from c where IS_DEFINED(c.missing)", False),
        ("from c where c.missing = 1", False),
        ("from c where c.text IN ('x', 'y')", False),
    ],
)
def test_conditions(container, item, condition, holds):
    def patch():
        return container.patch_item(item["id"], KEY, [operation("set", "/done", True)], filter_predicate=condition)

    if holds:
        assert patch()["done"] is True
    else:
        with fails(412):
            patch()


def test_a_condition_with_a_syntax_error(container, item):
    with fails(400):
        container.patch_item(
            item["id"], KEY, [operation("set", "/a", 1)], filter_predicate="from c where c.number =="
        )


def test_no_body_when_none_is_wanted(container, item):
    answer = container.patch_item(item["id"], KEY, [operation("set", "/a", 1)], no_response=True)
    assert answer == {}
    assert container.read_item(item["id"], KEY)["a"] == 1
