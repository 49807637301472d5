"""Large items and requests."""

from conftest import unique
from expectations import fails

LIMIT = 2 * 1024 * 1024


def test_an_item_just_below_two_megabytes(container):
    name = unique()
    filler = "f" * (LIMIT - 4096)
    created = container.create_item({"id": name, "pk": "large", "filler": filler})
    assert float(created.get_response_headers()["x-ms-request-charge"]) > 10
    assert container.read_item(name, "large")["filler"] == filler
    replaced = container.replace_item(name, {"id": name, "pk": "large", "filler": filler[::-1]})
    assert replaced["filler"] == filler
    container.delete_item(name, "large")


def test_an_item_above_two_megabytes_is_refused(container):
    name = unique()
    body = {"id": name, "pk": "large", "filler": "f" * LIMIT}
    with fails(413, message="Request size is too large"):
        container.create_item(body)
    with fails(413):
        container.upsert_item(body)
    with fails(404):
        container.read_item(name, "large")


def test_a_patch_may_not_grow_an_item_above_two_megabytes(container):
    name = unique()
    container.create_item({"id": name, "pk": "large", "filler": "f" * (LIMIT - 4096)})
    with fails(413):
        container.patch_item(name, "large", [{"op": "add", "path": "/more", "value": "m" * 8192}])
    assert "more" not in container.read_item(name, "large")
    container.delete_item(name, "large")


def test_charges_grow_with_size(container):
    def charges(size):
        name = unique()
        created = container.create_item({"id": name, "pk": "charges", "filler": "f" * size})
        read = container.read_item(name, "charges")
        container.delete_item(name, "charges")
        return [float(answer.get_response_headers()["x-ms-request-charge"]) for answer in (created, read)]

    small, large = charges(500), charges(100_000)
    assert small[1] == 1, "a point read of up to 1 KB costs one unit"
    assert large[0] > small[0] * 3
    assert large[1] > small[1] * 3


def test_the_same_request_costs_the_same(container):
    name = unique()
    container.create_item({"id": name, "pk": "charges", "value": 1})
    charges = {
        container.read_item(name, "charges").get_response_headers()["x-ms-request-charge"] for _ in range(5)
    }
    assert len(charges) == 1
