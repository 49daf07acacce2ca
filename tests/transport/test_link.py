"""A link that has failed: what was half read of it is nobody's answer."""

from __future__ import annotations

import pytest
from ferryman.schema.connection.address import Address
from ferryman.transport.connection.factory import LinkFactory
from ferryman.transport.errors import CONNECTION_ERRORS


def test_after_a_cut_connection_the_next_command_gets_its_own_answer(server, client):
    link = LinkFactory(Address.parse(server.url())).link()
    link.command("SET", "a", "1")
    client.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(CONNECTION_ERRORS):
        link.command("GET", "a")
    assert link.failed
    assert link.command("GET", "a") == b"1"
    assert link.command("PING") == b"PONG"
    link.close()
