"""The fixture `orrery_server`: one server for a whole test run.

Containers to create are listed in the ini option `orrery_containers`, such as `shop/orders:/customer`.
"""

import pytest

from . import Server


def pytest_addoption(parser):
    parser.addini("orrery_containers", "containers that the Orrery server has at the start", type="args", default=[])


@pytest.fixture(scope="session")
def orrery_server(pytestconfig):
    """A server in memory; has `endpoint`, `key` and `connection_string`."""
    with Server(containers=pytestconfig.getini("orrery_containers")) as server:
        yield server
