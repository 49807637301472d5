"""Reaching the server: both schemes on one port, the certificate, the account, credentials."""

import base64
import ssl
import urllib.error
import urllib.request

import pytest
from azure.core.exceptions import AzureError
from azure.core.pipeline.transport import AioHttpTransport
from azure.cosmos import exceptions
from azure.cosmos.documents import SSLConfiguration
from conftest import EMULATOR_KEY, unique
from expectations import fails


@pytest.fixture(scope="session")
def certificate(server, tmp_path_factory):
    """The server's own certificate, as a user would fetch it to trust it."""
    path = tmp_path_factory.mktemp("tls") / "emulator.pem"
    with urllib.request.urlopen(server.endpoint + "_explorer/emulator.pem") as answer:
        text = answer.read()
    assert b"BEGIN CERTIFICATE" in text
    assert b"PRIVATE KEY" not in text
    path.write_bytes(text)
    return str(path)


def use(client):
    name = unique("conn")
    database = client.create_database(name)
    assert database.read()["id"] == name
    client.delete_database(name)


def test_plain_http(client):
    use(client)


def trusting(clients, authority):
    """Options that make the client verify the server against this authority.

    The SDK turns verification off for loopback names unless it is told more than a path: the
    synchronous client takes an SSL configuration, the asynchronous one a transport.
    """
    if clients.kind == "sync":
        configuration = SSLConfiguration()
        configuration.SSLCaCerts = authority
        return {"ssl_config": configuration}

    class VerifyingTransport(AioHttpTransport):
        async def send(self, request, **options):
            return await super().send(request, **{**options, "connection_verify": authority})

    return {"transport": VerifyingTransport()}


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_https_with_the_certificate_trusted(clients, server, certificate, host):
    url = server.tls_endpoint.replace("127.0.0.1", host)
    use(clients.open(url, **trusting(clients, certificate)))


def test_https_without_verification(clients, server):
    use(clients.open(server.tls_endpoint, connection_verify=False))


def test_https_is_refused_by_a_client_that_trusts_another_authority(clients, server, tmp_path):
    other = tmp_path / "other.pem"
    other.write_text(SOME_OTHER_AUTHORITY)
    with pytest.raises(AzureError):
        clients.open(server.tls_endpoint, **trusting(clients, str(other)), retry_total=0, retry_connect=0)


def test_the_certificate_names_the_loopback_addresses(server, certificate):
    context = ssl.create_default_context(cafile=certificate)
    for host in ("127.0.0.1", "localhost"):
        url = server.tls_endpoint.replace("127.0.0.1", host) + "_orrery/health"
        with urllib.request.urlopen(url, context=context) as answer:
            assert answer.status == 200


def test_account_properties(clients, client, endpoint):
    account = client._get_database_account() if clients.kind == "aio" else client.get_database_account()
    assert account.ConsistencyPolicy["defaultConsistencyLevel"] == "Session"
    assert account.WritableLocations[0]["databaseAccountEndpoint"] == endpoint
    assert account.ReadableLocations[0]["databaseAccountEndpoint"] == endpoint
    assert account._EnableMultipleWritableLocations is False


def test_connection_string(clients, endpoint):
    if clients.kind == "aio":
        pytest.skip("the connection string is parsed by the same code")
    from azure.cosmos import CosmosClient

    with CosmosClient.from_connection_string(f"AccountEndpoint={endpoint};AccountKey={EMULATOR_KEY};") as client:
        use(client)


def test_a_wrong_key_is_refused(clients, endpoint):
    wrong = base64.b64encode(b"x" * 64).decode()
    with pytest.raises(exceptions.CosmosHttpResponseError) as caught:
        clients.open(endpoint, wrong).create_database(unique("never"))
    assert caught.value.status_code == 401
    assert "authorization token can't serve the request" in str(caught.value)


def test_the_request_without_authorization_is_refused(endpoint):
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(endpoint + "dbs")
    assert caught.value.code == 401
    assert caught.value.headers["x-ms-activity-id"]


@pytest.mark.parametrize("level", ["Session", "ConsistentPrefix", "Eventual"])
def test_weaker_consistency_levels(clients, endpoint, level):
    use(clients.open(endpoint, consistency_level=level))


def test_a_consistency_level_above_the_account_is_refused(clients, endpoint, container):
    strong = clients.open(endpoint, consistency_level="Strong")
    item = container.create_item({"id": unique(), "pk": "strong"})
    same = strong.get_database_client(database_of(container)).get_container_client(container.id)
    with fails(400):
        same.read_item(item["id"], "strong")


def database_of(container):
    return container.container_link.split("/")[1]


# A certificate authority made for this test alone; its key was thrown away.
SOME_OTHER_AUTHORITY = """\
-----BEGIN CERTIFICATE-----
MIIBoDCCAUWgAwIBAgIUfmksj4ONcbXPnGZAuTd0ImjJiLwwCgYIKoZIzj0EAwIw
JDEiMCAGA1UEAwwZbm90IHRoZSBzZXJ2ZXIgdW5kZXIgdGVzdDAgFw0yNjExMTUy
MTI3NTlaGA8yMTI2MTAyMjIxMjc1OVowJDEiMCAGA1UEAwwZbm90IHRoZSBzZXJ2
ZXIgdW5kZXIgdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABFfw/0wzQ/4q
1//FiwqGvI8PGHT+JzWTRpKV/TjG7S3tdPZ7Wfn/x8b8RUpozyjQJ7t63s0Eokjq
Dqp1stgyu+ijUzBRMB0GA1UdDgQWBBRySKSvpAHZC20AqF7HUaz15LsgWzAfBgNV
HSMEGDAWgBRySKSvpAHZC20AqF7HUaz15LsgWzAPBgNVHRMBAf8EBTADAQH/MAoG
CCqGSM49BAMCA0kAMEYCIQC3V9b23CjHmkmNYjGNh7Y/bh/SPt9unHvX5I7qHIrC
aAIhAKtlx3xhXWARJaYcyaEBssOayCH+cGdFTaE3x3KfIZgf
-----END CERTIFICATE-----
"""
