"""The private server of demos and tests: it is the one that was started, whoever else listens on this machine."""

from __future__ import annotations

import pytest
from ferryman.cli import embedded
from ferryman.cli.embedded import embedded_server
from ferryman.schema.connection.connect import open_client
from ferryman.schema.errors import ServerError

from ..support.servers import Server, free_port

pytestmark = pytest.mark.in_turn


def test_where_somebody_else_takes_the_free_port_first_it_starts_on_another(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = iter([server.port, free_port()])
    monkeypatch.setattr(embedded, "free_port", lambda: next(ports))
    with embedded_server() as address, open_client(address) as client:
        assert client.info("server")["process_id"] != server.pid


def test_a_port_that_was_asked_for_and_is_taken_is_an_error(server: Server) -> None:
    with pytest.raises(ServerError, match="did not start"), embedded_server(server.port):
        pass
