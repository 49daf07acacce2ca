"""Pages of jobs: from indexes, in the order of runs, the same jobs as whoever reads the whole keyspace finds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import UUID

import pytest
import redis
from attrs import evolve
from ferryman.migrations.atomic_read import LONGEST_LIST
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.long_keys import CHUNK
from ferryman.operations.lookup import lookup
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


@pytest.mark.parametrize("name", GENERATING)
def test_jobs_with_ten_thousand_more_fields_are_on_pages_and_found_by_id(server: Server, client: redis.Redis, name: str) -> None:
    family = get_family(name)
    store(client, family, family.default_prefix, list(family.generate(40, 5, NOW)), NOW)
    address = Address.parse(server.url(family=name))
    ids = {job.id for job in LocalEngine().jobs(address, NOW)}
    for key in client.keys("*"):
        if client.type(key) == b"hash" and any(key.endswith(job_id.encode()) for job_id in ids):
            client.hset(key, mapping={f"more-{number}": "x" for number in range(CHUNK + 1)})
    jobs = list(LocalEngine().jobs(address, NOW))
    assert len(jobs) == len(ids)
    for queue, state in {(job.queue, job.state) for job in jobs}:
        found = _pages(address, queue, state, 7)
        if found is not None:
            assert {job.id for job in found} == {job.id for job in jobs if (job.queue, job.state) == (queue, state)}
    found_by_id = lookup(address, [job.id for job in jobs], now_ms=NOW)
    if family.finds_by_id:
        assert found_by_id is not None
        assert {each.job.id for each in found_by_id.jobs} == ids


def test_a_list_too_long_to_be_searched_has_pages(server: Server, client: redis.Redis) -> None:
    ids = [str(UUID(int=number)) for number in range(LONGEST_LIST + 1)]
    client.lpush("jobs_queued:mail", *ids)
    for job_id in (*ids[:3], *ids[-3:]):
        client.hset(job_id, mapping={"json": json.dumps({"job_uuid": job_id, "queue_name": "mail"}), "created_at": "1.0"})
    address = Address.parse(server.url(family="pjq"))
    for newest, expected in ((False, ids[:3]), (True, ids[:-4:-1])):
        found = page(address, "mail", State.WAITING, 3, newest=newest, now_ms=NOW)
        assert found is not None
        assert [job.id for job in found.jobs] == expected


def test_a_cursor_that_no_page_has_named_is_refused() -> None:
    with pytest.raises(UsageError, match="is no cursor"):
        Cursor.parse("next")
