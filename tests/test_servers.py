"""The servers of these tests: no test asks another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import SERVERS
from .support.servers import Server, free_port

SYSTEM = Path("/proc/sys/net/ipv4/ip_local_port_range")
"""The ports that Linux gives to whoever wants any."""

pytestmark = pytest.mark.in_turn


@pytest.mark.skipif(not SYSTEM.exists(), reason="Linux says here which ports it gives away")
def test_ports_of_servers_are_none_that_the_system_gives_to_others() -> None:
    lowest = int(SYSTEM.read_text("ascii").split()[0])
    ports = [free_port() for _ in range(100)]
    assert max(ports) < lowest
    assert len(set(ports)) == len(ports)


def test_another_server_on_its_port_is_not_taken_for_a_server_that_was_started(server: Server, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=f"that of another server, process {server.pid}"):
        SERVERS[0].start(tmp_path, port=server.port).__enter__()
