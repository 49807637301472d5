"""Users, permissions and what a client may do with a permission's token alone."""

import pytest
from azure.cosmos import PartitionKey, exceptions
from azure.cosmos.documents import PermissionMode
from conftest import unique
from expectations import fails


@pytest.fixture
def user(database):
    name = unique("user")
    yield database.create_user({"id": name})
    try:
        database.delete_user(name)
    except exceptions.CosmosResourceNotFoundError:
        pass


@pytest.fixture(scope="module")
def guarded(database):
    container = database.create_container(unique("guarded"), PartitionKey(path="/pk"))
    container.create_item({"id": "a", "pk": "x", "value": 1})
    container.create_item({"id": "b", "pk": "y", "value": 2})
    return container


@pytest.fixture
def with_token(clients, endpoint, database, guarded):
    """The guarded container as seen by a client that holds only tokens."""

    def open_with(tokens):
        other = clients.open(endpoint, tokens)
        return other.get_database_client(database.id).get_container_client(guarded.id)

    return open_with


def test_user_lifecycle(database):
    name = unique("user")
    user = database.create_user({"id": name})
    properties = user.read()
    assert properties["id"] == name
    assert properties["_permissions"] == "permissions/"
    with fails(409):
        database.create_user({"id": name})
    assert name in {one["id"] for one in database.list_users()}
    renamed = unique("renamed")
    replaced = database.replace_user(user, {"id": renamed})
    assert replaced.read()["_rid"] == properties["_rid"]
    assert database.upsert_user({"id": renamed}).read()["_rid"] == properties["_rid"]
    assert database.upsert_user({"id": name}).read()["id"] == name
    for each in (renamed, name):
        database.delete_user(each)
    with fails(404):
        database.get_user_client(name).read()


def test_permission_lifecycle(user, guarded):
    body = {"id": "p", "permissionMode": PermissionMode.Read, "resource": guarded.container_link}
    permission = user.create_permission(body)
    assert permission.id == "p"
    assert permission.permission_mode == PermissionMode.Read
    token = permission.properties["_token"]
    assert token.startswith("type=resource&ver=1")
    assert user.get_permission("p").properties["_token"]
    assert [one["id"] for one in user.list_permissions()] == ["p"]
    with fails(409):
        user.create_permission(body)
    replaced = user.replace_permission("p", {**body, "permissionMode": PermissionMode.All})
    assert replaced.permission_mode == PermissionMode.All
    upserted = user.upsert_permission({**body, "permissionMode": PermissionMode.Read})
    assert upserted.permission_mode == PermissionMode.Read
    user.delete_permission("p")
    with fails(404):
        user.get_permission("p")


def test_two_permissions_on_one_resource_are_a_conflict(user, guarded):
    user.create_permission({"id": "p", "permissionMode": "Read", "resource": guarded.container_link})
    with fails(409):
        user.create_permission({"id": "q", "permissionMode": "All", "resource": guarded.container_link})


@pytest.mark.parametrize("mode", ["Sometimes", None])
def test_refused_modes(user, guarded, mode):
    with fails(400):
        user.create_permission({"id": "p", "permissionMode": mode, "resource": guarded.container_link})


def test_a_read_token_reads_and_writes_nothing(user, guarded, with_token):
    permission = user.create_permission({"id": "p", "permissionMode": "Read", "resource": guarded.container_link})
    container = with_token({guarded.container_link: permission.properties["_token"]})
    assert container.read_item("a", "x")["value"] == 1
    assert len(list(container.read_all_items())) == 2
    with fails(403):
        container.create_item({"id": unique(), "pk": "x"})
    with fails(403):
        container.replace_item("a", {"id": "a", "pk": "x"})
    with fails(403):
        container.delete_item("a", "x")
    assert guarded.read_item("a", "x")["value"] == 1


def test_a_full_token_writes(user, guarded, with_token):
    permission = user.create_permission({"id": "p", "permissionMode": "All", "resource": guarded.container_link})
    container = with_token({guarded.container_link: permission.properties["_token"]})
    name = unique()
    container.create_item({"id": name, "pk": "z"})
    container.upsert_item({"id": name, "pk": "z", "value": 2})
    assert container.read_item(name, "z")["value"] == 2
    container.delete_item(name, "z")


def test_a_token_for_one_container_opens_no_other(user, database, guarded, new_container, clients, endpoint):
    other = new_container()
    other.create_item({"id": "a", "pk": "x"})
    permission = user.create_permission({"id": "p", "permissionMode": "All", "resource": guarded.container_link})
    stranger = clients.open(endpoint, {other.container_link: permission.properties["_token"]})
    seen = stranger.get_database_client(database.id).get_container_client(other.id)
    with pytest.raises(exceptions.CosmosHttpResponseError) as caught:
        seen.read_item("a", "x")
    assert caught.value.status_code in (401, 403)


def test_a_token_for_one_partition_key(user, guarded, with_token):
    permission = user.create_permission(
        {
            "id": "p",
            "permissionMode": "Read",
            "resource": guarded.container_link,
            "resourcePartitionKey": ["x"],
        }
    )
    container = with_token({guarded.container_link: permission.properties["_token"]})
    assert container.read_item("a", "x")["value"] == 1
    with fails(403):
        container.read_item("b", "y")


def test_a_token_for_one_item(user, guarded, clients, endpoint, database):
    link = f"{guarded.container_link}/docs/a"
    permission = user.create_permission(
        {"id": "p", "permissionMode": "Read", "resource": link, "resourcePartitionKey": ["x"]}
    )
    # The client signs each request with the token of the closest resource it has one for.
    token = permission.properties["_token"]
    other = clients.open(endpoint, {link: token, guarded.container_link: token})
    container = other.get_database_client(database.id).get_container_client(guarded.id)
    assert container.read_item("a", "x")["value"] == 1
    with fails(403):
        container.read_item("b", "y")


def test_a_token_can_be_asked_to_live_for_a_given_time(user, guarded, with_token):
    permission = user.create_permission(
        {"id": "p", "permissionMode": "Read", "resource": guarded.container_link},
        request_options={"resourceTokenExpirySeconds": 600},
    )
    container = with_token({guarded.container_link: permission.properties["_token"]})
    assert container.read_item("a", "x")["value"] == 1


def test_a_forged_token_is_refused(user, guarded, with_token):
    permission = user.create_permission({"id": "p", "permissionMode": "Read", "resource": guarded.container_link})
    token = permission.properties["_token"]
    middle = len(token) // 2
    forged = token[:middle] + ("A" if token[middle] != "A" else "B") + token[middle + 1 :]
    with pytest.raises(exceptions.CosmosHttpResponseError) as caught:
        with_token({guarded.container_link: forged}).read_item("a", "x")
    assert caught.value.status_code in (401, 403)


def test_deleting_the_user_deletes_its_permissions(database, guarded):
    name = unique("user")
    user = database.create_user({"id": name})
    user.create_permission({"id": "p", "permissionMode": "Read", "resource": guarded.container_link})
    database.delete_user(name)
    again = database.create_user({"id": name})
    assert list(again.list_permissions()) == []
    database.delete_user(name)
