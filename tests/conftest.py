"""What every test may use, real servers above all; and the marks by what a test needs."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any
from zlib import crc32

import pytest
import redis
from hypothesis import HealthCheck, settings

from .support import effort
from .support.servers import Server, ServerKind, installed_servers

# How long an example takes says how busy the machine is.
settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=effort.examples(100)
)
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


# Marks by need: they follow from where a test stands, what its module imports, its fixtures, and a mark of its own

OF_FOLDER = {"spark": "spark", "faults": "faults", "chaos": "faults", "around": "faults"}
"""The mark of all tests of a folder."""
SERVER_FIXTURES = frozenset({"any_server", "server", "lasting", "keyspace_address"})
PAGE_FIXTURES = frozenset({"chrome", "site"})
SERVER_MODULES = frozenset(
    f"tests.support.{name}" for name in ("clusters", "topologies", "workers", "standalone", "movers", "gate")
)
"""Who imports one of these starts servers, workers or clusters itself."""
FIRST = ("spark", "chaos", "faults", "transport", "live", "interop", "around", "models")
"""Whose tests begin before all others, in this order."""


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nobody searches the tests for cycles, nor what they have loaded: millions of values, which live as long as this process.

    Python's collector would go through them again and again while they are collected, while tests run, and in each process that
    is forked from this one: three quarters of the time that collecting takes.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks each test: ``servers``, ``spark``, ``faults``, ``pages``; ``quick`` if it needs none of them and is not slow."""
    if not effort.NIGHTLY:
        _in_turn(config, items)
    for item in items:
        needs = set(_needs(item))
        if not needs and item.get_closest_marker("slow") is None:
            needs = {"quick"}
        for need in needs:
            item.add_marker(need)
    items[:] = _long_ones_first(items)


def _in_turn(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of each case of a test marked ``in_turn``, leaves out all but the one on the kind of server whose turn it is.

    The cases of a file stand in an order that their names give, and the kinds take turns in it: so each kind is asked by each
    file, whatever other parameters a test has. What was asked for by its name, with its kind of server, stays.
    """
    cases: dict[tuple[Path, str], dict[str, pytest.Item]] = {}
    for item in items:
        call = getattr(item, "callspec", None)
        kind = call and call.params.get("any_server")
        if isinstance(kind, ServerKind) and item.get_closest_marker("in_turn") is not None:
            ids = call.id.split("-")
            ids.remove(kind.name)
            cases.setdefault((item.path, f"{item.nodeid.partition('[')[0]} {ids}"), {})[kind.name] = item
    turns: dict[Path, int] = {}
    left_out: set[pytest.Item] = set()
    for (path, _), kinds in sorted(cases.items(), key=lambda case: crc32(case[0][1].encode())):
        turn = turns[path] = turns.get(path, -1) + 1
        if len(kinds) == len(SERVERS):
            chosen = SERVERS[turn % len(SERVERS)].name
            left_out |= {item for name, item in kinds.items() if name != chosen}
    config.hook.pytest_deselected(items=[item for item in items if item in left_out])
    items[:] = [item for item in items if item not in left_out]


def _long_ones_first(items: list[pytest.Item]) -> list[pytest.Item]:
    """Files of Spark, which keep processors busy; those whose tests wait for others; the models, which are long; all the rest.

    Processes that share the tests take a file at a time, in this order: none is left alone with a long one in the end.
    """
    return sorted(items, key=lambda item: (*FIRST, _folder(item)).index(_folder(item)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """``-n auto`` is three processes a core: tests wait for servers and workers much of their time."""
    return 3 * (os.cpu_count() or 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """Two of the processes that share the tests start Spark, not all."""
    if config.getvalue("dist") != "loadfile":
        return None
    from .support.scheduling import FewSessions

    return FewSessions(config, log)


def _folder(item: pytest.Item) -> str:
    return _folder_of(item.path)


@cache
def _folder_of(path: Path) -> str:
    return path.relative_to(Path(__file__).parent).parts[0]


def _needs(item: pytest.Item) -> Iterator[str]:
    folder = _folder(item)
    if folder in OF_FOLDER:
        yield OF_FOLDER[folder]
    if item.get_closest_marker("servers") is not None:
        yield "servers"
    module, fixtures = getattr(item, "module", None), set(getattr(item, "fixturenames", ()))
    if PAGE_FIXTURES & fixtures:
        yield "pages"
    if SERVER_FIXTURES & fixtures or (isinstance(module, ModuleType) and _starts_servers(module)):
        yield "servers"


@cache
def _starts_servers(module: ModuleType) -> bool:
    return any(getattr(each, "__module__", None) in SERVER_MODULES for each in vars(module).values())


@pytest.fixture(scope="module")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser for all tests of a module."""
    from .support.browser import browser  # selenium, for those who look at pages

    with browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


@pytest.fixture
def driver(chrome: Any) -> Any:
    """The browser as it is by default."""
    from .support.browser import console, look

    look(chrome)
    chrome.get("about:blank")
    console(chrome)
    return chrome
