"""Throughput: offers of databases and containers, manual and automatic."""

import contextlib

import pytest
from azure.cosmos import PartitionKey, ThroughputProperties, exceptions
from conftest import unique
from expectations import fails


@contextlib.contextmanager
def no_offer():
    """The client finds no offer and says so, or stumbles over having no container to refresh."""
    with pytest.raises((exceptions.CosmosResourceNotFoundError, AttributeError)) as caught:
        yield
    first = caught.value.__context__ if isinstance(caught.value, AttributeError) else caught.value
    assert "Could not find ThroughputProperties" in str(first)


@pytest.fixture
def shared_throughput_database(client):
    name = unique("shared-ru")
    yield client.create_database(name, offer_throughput=500)
    client.delete_database(name)


def test_a_container_has_four_hundred_by_default(new_container):
    throughput = new_container().get_throughput()
    assert throughput.offer_throughput == 400
    assert throughput.auto_scale_max_throughput is None


def test_a_container_with_its_own_throughput(new_container):
    container = new_container(offer_throughput=1200)
    throughput = container.get_throughput()
    assert throughput.offer_throughput == 1200
    offer = throughput.properties
    properties = container.read()
    assert offer["resource"] == properties["_self"]
    assert offer["offerResourceId"] == properties["_rid"]
    assert offer["offerVersion"] == "V2"
    assert offer["id"] == offer["_rid"]
    assert offer["_self"] == f"offers/{offer['id']}/"


def test_replace(new_container):
    container = new_container(offer_throughput=500)
    replaced = container.replace_throughput(700)
    assert replaced.offer_throughput == 700
    assert container.get_throughput().offer_throughput == 700
    replaced = container.replace_throughput(ThroughputProperties(offer_throughput=800))
    assert replaced.offer_throughput == 800


@pytest.mark.parametrize("throughput", [100, 450, -200])
def test_refused_replacements(new_container, throughput):
    container = new_container(offer_throughput=500)
    with fails(400):
        container.replace_throughput(throughput)
    assert container.get_throughput().offer_throughput == 500


@pytest.mark.parametrize("throughput", [100, 450])
def test_refused_at_creation(database, throughput):
    with fails(400):
        database.create_container(unique("bad"), PartitionKey(path="/pk"), offer_throughput=throughput)


def test_automatic(new_container):
    container = new_container(offer_throughput=ThroughputProperties(auto_scale_max_throughput=4000))
    throughput = container.get_throughput()
    assert throughput.auto_scale_max_throughput == 4000
    replaced = container.replace_throughput(ThroughputProperties(auto_scale_max_throughput=5000))
    assert replaced.properties["content"]["offerAutopilotSettings"]["maxThroughput"] == 5000
    assert container.get_throughput().auto_scale_max_throughput == 5000


def test_automatic_with_an_increment(new_container):
    container = new_container(
        offer_throughput=ThroughputProperties(auto_scale_max_throughput=5000, auto_scale_increment_percent=2)
    )
    assert container.get_throughput().auto_scale_increment_percent == 2


def test_automatic_below_the_minimum(database):
    with fails(400):
        database.create_container(
            unique("bad"),
            PartitionKey(path="/pk"),
            offer_throughput=ThroughputProperties(auto_scale_max_throughput=500),
        )


def test_a_database_without_throughput_has_no_offer(database):
    with no_offer():
        database.get_throughput()


def test_a_database_with_throughput(shared_throughput_database):
    database = shared_throughput_database
    assert database.get_throughput().offer_throughput == 500
    assert database.replace_throughput(900).offer_throughput == 900
    assert database.get_throughput().offer_throughput == 900


def test_containers_share_the_throughput_of_their_database(shared_throughput_database):
    database = shared_throughput_database
    sharing = database.create_container("sharing", PartitionKey(path="/pk"))
    with no_offer():
        sharing.get_throughput()
    own = database.create_container("own", PartitionKey(path="/pk"), offer_throughput=600)
    assert own.get_throughput().offer_throughput == 600


def only_where_offers_are_read_directly(clients):
    if clients.kind == "aio":
        pytest.skip("the asynchronous client only queries offers")


def test_deleting_the_container_deletes_its_offer(clients, client, database):
    only_where_offers_are_read_directly(clients)
    name = unique("gone")
    container = database.create_container(name, PartitionKey(path="/pk"), offer_throughput=600)
    link = container.get_throughput().properties["_self"]
    database.delete_container(name)
    with fails(404):
        client.client_connection.ReadOffer(link)


def test_offers_are_listed(clients, client, new_container):
    only_where_offers_are_read_directly(clients)
    container = new_container(offer_throughput=600)
    wanted = container.read()["_self"]
    offers = list(client.client_connection.ReadOffers())
    assert [offer["content"]["offerThroughput"] for offer in offers if offer["resource"] == wanted] == [600]


def test_more_throughput_means_more_partitions(new_container):
    container = new_container(offer_throughput=30000)
    ranges = list(container.read_feed_ranges())
    assert len(ranges) >= 3
