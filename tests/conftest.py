"""What every test may use, real servers above all; and the marks by what a test needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

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


# Marks by need: they follow from where a test stands, what its module imports, and its fixtures

OF_FOLDER = {"spark": "spark", "faults": "faults", "chaos": "faults", "around": "faults"}
"""The mark of all tests of a folder."""
SERVER_FIXTURES = frozenset({"any_server", "lasting", "keyspace_address"})
SERVER_MODULES = frozenset(
    f"tests.support.{name}" for name in ("clusters", "topologies", "workers", "standalone", "movers", "gate")
)
"""Who imports one of these starts servers, workers or clusters itself."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks each test: ``servers``, ``spark``, ``faults``; ``quick`` if it needs none of them and is not slow."""
    for item in items:
        needs = set(_needs(item))
        if not needs and item.get_closest_marker("slow") is None:
            needs = {"quick"}
        for need in needs:
            item.add_marker(need)


def _needs(item: pytest.Item) -> Iterator[str]:
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    if folder in OF_FOLDER:
        yield OF_FOLDER[folder]
    module = getattr(item, "module", None)
    if SERVER_FIXTURES & set(getattr(item, "fixturenames", ())) or (isinstance(module, ModuleType) and _starts_servers(module)):
        yield "servers"


def _starts_servers(module: ModuleType) -> bool:
    return any(getattr(each, "__module__", None) in SERVER_MODULES for each in vars(module).values())
