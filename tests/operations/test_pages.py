"""Pages of jobs: from indexes, in the order of runs, the same jobs as whoever reads the whole keyspace finds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from attrs import evolve
from ferryman.migrations.local import LocalEngine
from ferryman.operations.pages import Cursor, page
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import UsageError
from ferryman.schema.family import get_family
from ferryman.schema.job import Job, State
from ferryman.testing.keyspaces import store

from ..support.families import GENERATING
from ..support.mending import NOW
from ..support.servers import Server

pytestmark = pytest.mark.in_turn


def _pages(address: Address, queue: str, state: State, limit: int, *, newest: bool = False) -> Iterator[Job] | None:
    """All jobs, page by page; None where there are no pages."""
    first = page(address, queue, state, limit, newest=newest, now_ms=NOW)
    if first is None:
        return None

    def rest() -> Iterator[Job]:
        found = first
        while found is not None:
            assert len(found.jobs) <= limit or state is State.BLOCKED
            yield from found.jobs
            found = (
                page(address, queue, state, limit, Cursor.parse(str(found.next)), newest=newest, now_ms=NOW)
                if found.next
                else None
            )

    return rest()


@pytest.mark.parametrize("name", GENERATING)
def test_pages_have_the_jobs_of_the_whole_keyspace_in_their_order(server: Server, client: redis.Redis, name: str) -> None:
    family = get_family(name)
    store(client, family, family.default_prefix, list(family.generate(400, 5, NOW)), NOW)
    address = Address.parse(server.url(family=name))
    jobs = list(LocalEngine().jobs(address, NOW))
    paged = 0
    for queue, state in sorted({(job.queue, job.state) for job in jobs}):
        expected = [job for job in jobs if (job.queue, job.state) == (queue, state)]
        found = _pages(address, queue, state, 7)
        if found is None:
            continue
        seen = list(found)
        backwards = list(_pages(address, queue, state, 7, newest=True) or ())
        if state is State.WAITING:
            assert [job.id for job in seen] == [job.id for job in expected]
            assert [job.id for job in backwards] == [job.id for job in reversed(expected)]
        if name == "kombu":  # what binding tables say of a message is no part of its page
            seen, expected = ([evolve(job, extra={}) for job in jobs] for jobs in (seen, expected))
        assert sorted(seen, key=lambda job: job.id) == sorted(expected, key=lambda job: job.id)
        assert sorted(job.id for job in backwards) == sorted(job.id for job in expected)
        paged += len(seen)
    assert paged > len(jobs) / 5


def test_a_cursor_that_no_page_has_named_is_refused() -> None:
    with pytest.raises(UsageError, match="is no cursor"):
        Cursor.parse("next")
