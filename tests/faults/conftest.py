"""What goes wrong between a client and its server does not depend on the kind of server: one kind is enough here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ..conftest import SERVERS
from ..support.servers import Server, ServerKind


@pytest.fixture(scope="session")
def kind() -> ServerKind:
    """The system's redis-server, which has TLS and Sentinel; the embedded Valkey where there is none."""
    return SERVERS[-1]


@pytest.fixture(scope="session")
def any_server(kind: ServerKind, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the whole folder."""
    with kind.start(tmp_path_factory.mktemp("server")) as server:
        yield server
