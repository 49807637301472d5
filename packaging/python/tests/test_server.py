"""The server and the fixture, with the binary that ORRERY_BIN names."""

import json
import subprocess
import urllib.error
import urllib.request

import orrery_bin
import pytest


def containers(server):
    command = [orrery_bin.binary(), "containers", "list", "--output", "json", "--connection", server.connection_string]
    listed = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return {f"{row['database']}/{row['id']}" for row in listed}


def test_the_fixture_has_a_server_with_the_containers_of_the_configuration(orrery_server):
    assert containers(orrery_server) == {"shop/orders", "shop/stock"}
    assert orrery_server.connection_string == f"AccountEndpoint={orrery_server.endpoint};AccountKey={orrery_server.key};"


def test_the_whole_run_shares_one_server(orrery_server, request):
    assert orrery_server is request.getfixturevalue("orrery_server")


def test_a_server_ends_when_it_is_closed():
    with orrery_bin.Server(containers=["a/b:/c"]) as server:
        assert containers(server) == {"a/b"}
        assert urllib.request.urlopen(server.endpoint + "ready").status == 200
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(server.endpoint + "ready")


def test_a_server_that_does_not_start_is_an_error():
    with pytest.raises(RuntimeError, match="exit code 2"):
        orrery_bin.Server(containers=["no container"])


def test_the_binary_of_the_variable_is_used(monkeypatch):
    monkeypatch.setenv("ORRERY_BIN", "/nowhere/orrery")
    with pytest.raises(FileNotFoundError):
        orrery_bin.Server()
