import pytest
from azure.cosmos import CosmosClient

from orrery_container import OrreryContainer


@pytest.fixture(scope="session")
def orders():
    with OrreryContainer("shop/orders:/customer", "shop/stock:/sku") as server:
        client = CosmosClient(server.endpoint, server.key)
        yield client.get_database_client("shop").get_container_client("orders")


def test_an_order_is_found_again(orders):
    orders.create_item({"id": "1", "customer": "ann", "total": 12})
    orders.create_item({"id": "2", "customer": "bob", "total": 30})
    assert orders.read_item("1", "ann")["total"] == 12
    rows = orders.query_items("SELECT VALUE SUM(c.total) FROM c", enable_cross_partition_query=True)
    assert list(rows) == [42]
