"""Fixtures that every test may use: real servers, and the captured keyspaces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from hypothesis import settings

from .support.servers import Server, installed_servers

# How long an example takes says how busy the machine is.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# The embedded Valkey always runs; a system redis-server joins in where one is found.
SERVERS = installed_servers()


@pytest.fixture(scope="session", params=SERVERS, ids=[kind.name for kind in SERVERS])
def any_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Each kind of server found on this machine, started once for the whole run."""
    with request.param.start(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def server(any_server: Server) -> Server:
    """A running server with every database empty. Tests that take it run once for each kind of server."""
    any_server.client().flushall()
    return any_server


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    """A client of ``server``, database 0, replies as bytes."""
    with server.client() as connected:
        yield connected
