"""While the local engine holds a keyspace in memory, nobody goes through all of it again and again."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from ferryman.compat.kue import FAMILY
from ferryman.compat.kue.generate import generate
from ferryman.migrations.gc_paused import gc_paused
from ferryman.migrations.local import LocalEngine
from ferryman.schema.connection.address import Address
from ferryman.testing.keyspaces import store

from ..support.servers import Server

NOW = 1_800_000_000_000


@pytest.fixture
def eager() -> Iterator[tuple[int, int, int]]:
    """A collector that looks at everything all the time."""
    before, eager = gc.get_threshold(), (100, 1, 1)
    gc.set_threshold(*eager)
    yield eager
    gc.set_threshold(*before)


def full_collections() -> int:
    return int(gc.get_stats()[2]["collections"])


def test_a_keyspace_is_listed_without_a_look_at_all_that_lives(server: Server, eager: tuple[int, int, int]) -> None:
    store(server.client(), FAMILY, "q", generate(300, 1, NOW), NOW)
    jobs = LocalEngine().jobs(Address.parse(server.url(0, family="kue")), NOW)
    before = full_collections()
    next(jobs)
    assert full_collections() == before
    assert gc.get_threshold() == eager


def test_the_collector_is_as_before_also_after_an_error(eager: tuple[int, int, int]) -> None:
    @gc_paused()
    def fail() -> None:
        assert gc.get_threshold() != eager
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert gc.get_threshold() == eager
