"""Every case of the query language through the client: inside one key, and over four physical partitions."""

import json
from pathlib import Path

import orrery_server
import pytest
from azure.cosmos import CosmosClient, PartitionKey
from azure.cosmos.exceptions import CosmosHttpResponseError
from azure.cosmos.partition_key import NonePartitionKeyValue
from conftest import EMULATOR_KEY

pytestmark = pytest.mark.query

CASES = Path(__file__).parents[3] / "crates/orrery-query/tests/cases"
DATASETS = json.loads((CASES / "datasets.json").read_text(encoding="utf-8"))
FAMILIES = sorted(path for path in CASES.glob("*.json") if path.name != "datasets.json")
SYSTEM_PROPERTIES = {"_rid", "_self", "_etag", "_attachments", "_ts"}


@pytest.fixture(scope="module")
def cases_database():
    # The server's own merge is tested: the client's refuses what the service refuses.
    merge = ["--cross-partition-queries", "merge"]
    server = orrery_server.start(["--in-memory", "--partitions-at-creation", "4", *merge])
    with CosmosClient(server.endpoint, EMULATOR_KEY) as client:
        yield client.create_database_if_not_exists("cases")
    server.stop()


class Containers:
    """One container for all cases with the same settings and documents."""

    def __init__(self, database, key_path):
        self._database = database
        self._key_path = key_path
        self._known = {}

    def find(self, case):
        documents = case.get("documents") or DATASETS.get(case.get("dataset"), [])
        policy = json.loads(json.dumps(case.get("indexingPolicy")))
        if "compositeIndexes" in case:
            policy = policy or {"includedPaths": [{"path": "/*"}]}
            policy["compositeIndexes"] = case["compositeIndexes"]
        settings = {
            "indexing_policy": policy,
            "computed_properties": case.get("computedProperties"),
            "vector_embedding_policy": case.get("vectorEmbeddingPolicy"),
            "full_text_policy": case.get("fullTextPolicy"),
        }
        settings = {name: value for name, value in settings.items() if value is not None}
        identity = json.dumps([settings, documents], sort_keys=True)
        if identity not in self._known:
            name = f"c{self._key_path.replace('/', '-')}-{len(self._known)}"
            container = self._database.create_container(name, PartitionKey(path=self._key_path), **settings)
            for document in documents:
                container.create_item(document)
            self._known[identity] = container
        return self._known[identity]


def stripped(value):
    if isinstance(value, list):
        return [stripped(item) for item in value]
    if isinstance(value, dict):
        return {name: stripped(item) for name, item in value.items() if name not in SYSTEM_PROPERTIES}
    return value


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def same(left, right, case):
    tolerance = case.get("tolerance", 0)
    if is_number(left) and is_number(right):
        difference = abs(left - right)
        near = difference <= tolerance * max(abs(left), abs(right))
        return left == right or near or (tolerance > 0 and difference < 1e-12)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(same(a, b, case) for a, b in zip(left, right))
    if isinstance(left, dict) and isinstance(right, dict):

        def same_member(name):
            if isinstance(left[name], list) and name in case.get("unorderedArrays", ()):
                return same_rows(left[name], right[name], {**case, "ordered": False})
            return same(left[name], right[name], case)

        return left.keys() == right.keys() and all(same_member(name) for name in left)
    return type(left) is type(right) and left == right


def same_rows(left, right, case):
    if len(left) != len(right):
        return False
    if case["ordered"]:
        return all(same(a, b, case) for a, b in zip(left, right))
    rest = list(right)
    for row in left:
        at = next((at for at, other in enumerate(rest) if same(row, other, case)), None)
        if at is None:
            return False
        rest.pop(at)
    return True


def check_error(expected, error):
    assert error.status_code == 400, error
    text = error.message.replace('\\"', '"').replace("\\\\", "\\")
    assert any(str(code) in text for code in expected.get("codes", [""])), text
    assert expected.get("message", "") in text, text


def define_functions(container, case):
    for name, body in case.get("udfs", {}).items():
        try:
            container.scripts.create_user_defined_function({"id": name, "body": body})
        except CosmosHttpResponseError as error:
            # Another case has defined it before.
            assert error.status_code == 409, error


def check(case, containers, options):
    try:
        container = containers.find(case)
        define_functions(container, case)
        rows = container.query_items(
            case["query"], parameters=case.get("parameters"), max_item_count=3, **options
        )
        rows = stripped(list(rows))
    except CosmosHttpResponseError as error:
        if "error" not in case:
            raise
        check_error(case["error"], error)
        return
    assert "error" not in case, f"gave {rows} instead of an error"
    expected = stripped(case["expected"])
    assert same_rows(rows, expected, case), f"gave {rows}\nexpected {expected}"


def check_all(containers, options):
    failures, count = [], 0
    for family in FAMILIES:
        for case in json.loads(family.read_text(encoding="utf-8")):
            count += 1
            try:
                check(case, containers, options)
            except Exception as error:  # The rest is worth knowing too.
                failures.append(f"{case['name']}\n  {case['query']}\n  {type(error).__name__} {error}")
    assert not failures, f"{len(failures)} of {count} failed:\n" + "\n".join(failures)
    assert count == 1188


def test_all_cases_hold_inside_one_key(cases_database):
    # No document has the key's property, so all lie under one key and show nothing of it.
    check_all(Containers(cases_database, "/nowhere"), {"partition_key": NonePartitionKeyValue})


def test_all_cases_hold_over_four_partitions(cases_database):
    check_all(Containers(cases_database, "/id"), {"enable_cross_partition_query": True})
