"""Stored procedures, triggers and user-defined functions."""

import pytest
from azure.cosmos import PartitionKey, documents
from conftest import unique
from expectations import fails


@pytest.fixture(scope="module")
def scripted(database):
    return database.create_container(unique("scripted"), PartitionKey(path="/pk"))


@pytest.fixture
def execute(clients, scripted):
    """Runs a procedure; the two kinds of clients name the arguments differently."""
    name = "params" if clients.kind == "sync" else "parameters"

    def run(sproc, key, arguments, **options):
        given = {name: arguments, **options}
        return scripted.scripts.execute_stored_procedure(sproc, partition_key=key, **given)

    return run


def test_procedure_lifecycle(scripted):
    scripts, name = scripted.scripts, unique("sproc")
    created = scripts.create_stored_procedure({"id": name, "body": "function () { var x = 10; }"})
    assert created["id"] == name and created["body"] == "function () { var x = 10; }"
    with fails(409):
        scripts.create_stored_procedure({"id": name, "body": "function () {}"})
    assert name in {one["id"] for one in scripts.list_stored_procedures()}
    found = scripts.query_stored_procedures(
        "SELECT * FROM root r WHERE r.id = @id", parameters=[{"name": "@id", "value": name}]
    )
    assert [one["id"] for one in found] == [name]
    replaced = scripts.replace_stored_procedure(name, {"id": name, "body": "function () { var x = 20; }"})
    assert replaced["_rid"] == created["_rid"] and replaced["_etag"] != created["_etag"]
    assert scripts.get_stored_procedure(created)["body"] == "function () { var x = 20; }"
    scripts.delete_stored_procedure(name)
    with fails(404):
        scripts.get_stored_procedure(name)


def test_procedures_are_transactions(scripted, execute):
    scripts = scripted.scripts
    scripts.create_stored_procedure(
        {
            "id": "pair",
            "body": """function (pk, fails) {
                var collection = getContext().getCollection();
                collection.createDocument(collection.getSelfLink(), {id: 'one', pk: pk}, function (error, one) {
                    if (error) throw error;
                    collection.queryDocuments(collection.getSelfLink(), 'SELECT VALUE c.id FROM c', function (error, ids) {
                        if (fails) throw new Error(1234, 'on purpose');
                        getContext().getResponse().setBody(ids);
                    });
                });
            }""",
        }
    )
    undone, done = unique("pk"), unique("pk")
    with fails(400) as caught:
        execute("pair", undone, [undone, True])
    assert "on purpose" in caught.value.message
    assert caught.value.sub_status == 1234
    with fails(404):
        scripted.read_item("one", undone)
    assert execute("pair", done, [done, False]) == ["one"]
    assert scripted.read_item("one", done)["id"] == "one"


def test_procedures_log(scripted, execute):
    scripted.scripts.create_stored_procedure(
        {"id": "log", "body": "function () { console.log('The value of %s is %s.', 'x', 1); }"}
    )
    execute("log", "a", [], enable_script_logging=True)
    answered = scripted.client_connection.last_response_headers
    assert answered["x-ms-documentdb-script-log-results"] == "The%20value%20of%20x%20is%201."
    execute("log", "a", [])
    assert "x-ms-documentdb-script-log-results" not in scripted.client_connection.last_response_headers


def test_triggers_run_around_writes(scripted):
    scripts = scripted.scripts
    trigger = {"triggerType": documents.TriggerType.Pre, "triggerOperation": documents.TriggerOperation.All}
    created = scripts.create_trigger(
        {
            **trigger,
            "id": "stamp",
            "body": """function () {
                var request = getContext().getRequest(), item = request.getBody();
                item.stamped = request.getOperationType();
                request.setBody(item);
            }""",
        }
    )
    assert created["triggerType"] == documents.TriggerType.Pre
    scripts.create_trigger(
        {
            "id": "refuse",
            "body": "function () { throw new Error('not this one'); }",
            "triggerType": documents.TriggerType.Post,
            "triggerOperation": documents.TriggerOperation.Create,
        }
    )
    pk = unique("pk")
    assert scripted.create_item({"id": "a", "pk": pk}, pre_trigger_include="stamp")["stamped"] == "Create"
    assert scripted.replace_item("a", {"id": "a", "pk": pk}, pre_trigger_include="stamp")["stamped"] == "Replace"
    with fails(400):
        scripted.create_item({"id": "b", "pk": pk}, pre_trigger_include="stamp", post_trigger_include="refuse")
    with fails(404):
        scripted.read_item("b", pk)
    with fails(400):
        scripted.upsert_item({"id": "b", "pk": pk}, post_trigger_include="refuse")
    assert {one["id"] for one in scripts.list_triggers()} == {"stamp", "refuse"}
    scripts.delete_trigger("refuse")


def test_functions_run_in_queries(scripted):
    scripts, pk = scripted.scripts, unique("pk")
    scripts.create_user_defined_function(
        {"id": "tax", "body": "function tax(income) { return income < 1000 ? income * 0.1 : income * 0.4; }"}
    )
    for number, income in enumerate([100, 1000, 2000]):
        scripted.create_item({"id": str(number), "pk": pk, "income": income})
    rows = scripted.query_items(
        "SELECT VALUE udf.tax(c.income) FROM c WHERE udf.tax(c.income) > 50 ORDER BY c.income", partition_key=pk
    )
    assert list(rows) == [400, 800]
    with fails(400):
        list(scripted.query_items("SELECT VALUE udf.nothing(c.income) FROM c", partition_key=pk))
    scripts.delete_user_defined_function("tax")
