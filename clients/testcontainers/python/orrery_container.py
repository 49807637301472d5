"""Orrery in a container, for Testcontainers."""

import os

from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import HttpWaitStrategy

IMAGE = os.environ.get("ORRERY_IMAGE", "orrery:0.2.0")
KEY = "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
PORT = 8081


class OrreryContainer(DockerContainer):
    """A server whose containers are listed as `shop/orders:/customer`."""

    def __init__(self, *containers: str, image: str = IMAGE):
        super().__init__(image)
        self.with_exposed_ports(PORT)
        self.with_command(["serve", "--in-memory", "--profile", "emulator"])
        self.with_env("ORRERY_CONTAINERS", ",".join(containers))
        self.waiting_for(HttpWaitStrategy(PORT, "/ready").for_status_code(200))

    @property
    def endpoint(self) -> str:
        return f"http://{self.get_container_host_ip()}:{self.get_exposed_port(PORT)}/"

    @property
    def key(self) -> str:
        return KEY
