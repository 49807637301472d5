"""Many clients and many requests at the same time."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from azure.core import MatchConditions
from azure.cosmos import CosmosClient, PartitionKey, exceptions
from azure.cosmos.aio import CosmosClient as AsyncCosmosClient
from conftest import EMULATOR_KEY, unique


def test_many_clients_in_threads(endpoint, new_container, database, clients):
    container = new_container(offer_throughput=20000)

    def work(worker):
        with CosmosClient(endpoint, EMULATOR_KEY) as client:
            own = client.get_database_client(database.id).get_container_client(container.id)
            for number in range(10):
                own.create_item({"id": f"{worker}-{number}", "pk": f"{number}"})
                assert own.read_item(f"{worker}-{number}", f"{number}")["id"] == f"{worker}-{number}"

    with ThreadPoolExecutor(12) as pool:
        list(pool.map(work, range(12)))
    assert len(list(container.read_all_items())) == 120


def test_many_requests_of_one_asynchronous_client(endpoint, new_container, database):
    container = new_container()

    async def work():
        async with AsyncCosmosClient(endpoint, EMULATOR_KEY) as client:
            own = client.get_database_client(database.id).get_container_client(container.id)
            await asyncio.gather(*(own.create_item({"id": f"{n}", "pk": f"{n % 5}"}) for n in range(150)))
            items = await asyncio.gather(*(own.read_item(f"{n}", f"{n % 5}") for n in range(150)))
            assert [item["id"] for item in items] == [f"{n}" for n in range(150)]
            return [item["id"] async for item in own.read_all_items()]

    assert len(asyncio.run(work())) == 150


def test_increments_are_not_lost(endpoint, new_container, database):
    container = new_container()
    container.create_item({"id": "counter", "pk": "x", "value": 0})

    async def work():
        async with AsyncCosmosClient(endpoint, EMULATOR_KEY) as client:
            own = client.get_database_client(database.id).get_container_client(container.id)
            increment = [{"op": "incr", "path": "/value", "value": 1}]
            await asyncio.gather(*(own.patch_item("counter", "x", increment) for _ in range(100)))

    asyncio.run(work())
    assert container.read_item("counter", "x")["value"] == 100


def test_one_of_many_creates_wins(container):
    name = unique()

    def create(number):
        try:
            container.create_item({"id": name, "pk": "race", "number": number})
            return number
        except exceptions.CosmosResourceExistsError:
            return None

    with ThreadPoolExecutor(8) as pool:
        winners = [number for number in pool.map(create, range(8)) if number is not None]
    assert len(winners) == 1
    assert container.read_item(name, "race")["number"] == winners[0]


def test_one_of_many_conditional_replaces_wins(container):
    item = container.create_item({"id": unique(), "pk": "race", "number": -1})

    def replace(number):
        try:
            container.replace_item(
                item["id"],
                {"id": item["id"], "pk": "race", "number": number},
                etag=item["_etag"],
                match_condition=MatchConditions.IfNotModified,
            )
            return number
        except exceptions.CosmosAccessConditionFailedError:
            return None

    with ThreadPoolExecutor(8) as pool:
        winners = [number for number in pool.map(replace, range(8)) if number is not None]
    assert len(winners) == 1
    assert container.read_item(item["id"], "race")["number"] == winners[0]


def test_containers_created_at_the_same_time(client, database):
    name = unique("race")

    def create(_):
        try:
            database.create_container(name, PartitionKey(path="/pk"))
            return 1
        except exceptions.CosmosResourceExistsError:
            return 0

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(create, range(6))) == 1
    database.delete_container(name)
