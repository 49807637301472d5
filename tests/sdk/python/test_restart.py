"""A client that keeps running while the server behind it is restarted on the same data."""

import os

import orrery_server
import pytest
from azure.cosmos import PartitionKey
from conftest import unique

pytestmark = pytest.mark.skipif(
    not os.environ.get("ORRERY_BIN") or bool(os.environ.get("ORRERY_ENDPOINT")),
    reason="needs a server of its own to restart",
)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_the_client_goes_on(clients, tmp_path, end):
    arguments = ("--data", str(tmp_path / "data"))
    server = orrery_server.start(arguments)
    try:
        client = clients.open(server.endpoint)
        database = client.create_database(unique("db"), offer_throughput=600)
        container = database.create_container("c", PartitionKey(path="/pk"), offer_throughput=20000)
        created = [container.create_item({"id": f"{n}", "pk": f"{n % 5}", "n": n}) for n in range(20)]
        before = container.read()
        token = created[-1].get_response_headers()["x-ms-session-token"]

        getattr(server, end)()
        server = orrery_server.start_at(server.address, arguments)

        # The client still holds the session tokens of the first life and sends them.
        for item in created:
            assert container.read_item(item["id"], item["pk"]) == item
        assert container.read_item("19", "4", session_token=token)["n"] == 19
        assert container.read()["_rid"] == before["_rid"]
        assert container.get_throughput().offer_throughput == 20000
        assert database.get_throughput().offer_throughput == 600
        assert len(list(container.read_all_items())) == 20
        later = container.create_item({"id": "later", "pk": "4"}).get_response_headers()["x-ms-session-token"]
        assert number(later) > number(token)
    finally:
        server.stop()


def number(session_token):
    return int(session_token.partition(":")[2].split("#")[1])
