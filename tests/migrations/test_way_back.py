"""The way back: jobs that go to another family and return are in the order in which the original software would run them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

import pytest
import redis
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.order import pop_orders
from ferryman.schema.connection.address import Address
from ferryman.schema.family import get_family
from ferryman.schema.job import Job, State
from ferryman.testing.keyspaces import store
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..support.command import ferryman
from ..support.effort import examples
from ..support.families import GENERATING
from ..support.mending import NOW
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

Turn = Callable[[Job], Any]


def _no_rank(_: Job) -> int:
    return 0


def _lease(job: Job) -> Any:
    """The first lease to end; kickq knows neither leases nor, for a job that runs, times."""
    return job.lease_expires_at or job.started_at or 0, job.id


def _in_front(rank: Turn, among_held: Turn = _lease) -> Turn:
    """The turn of jobs where those that a worker held run before the others of their rank; the others keep their order."""
    return lambda job: (rank(job), 0, among_held(job)) if job.state is State.ACTIVE else (rank(job), 1, job.position)


def _reversed_bytes(text: str) -> tuple[int, ...]:
    return tuple(-byte for byte in text.encode())


TURNS: Mapping[str, Turn] = {
    "bee": _in_front(_no_rank),
    "ferryman": lambda job: job.extra["ferryman"]["score"],
    "kickq": _in_front(_no_rank),
    "kombu": _in_front(lambda job: job.rank),
    "kue": lambda job: (job.priority, int(job.id)),
    "pjq": _in_front(_no_rank),
    "qless": _in_front(lambda job: job.rank, lambda job: _reversed_bytes(job.id)),
}
"""When a job's turn is at home, as each family's own software has it, of jobs as they were before they left."""


def _expected(jobs: Iterable[Job], turn: Turn) -> dict[str, list[str]]:
    queues: defaultdict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        is_due = job.due_at is None or job.due_at <= NOW
        if (job.state is State.WAITING and job.position is not None) or (job.state is State.ACTIVE and is_due):
            queues[job.queue].append(job)
    return {queue: [job.id for job in sorted(found, key=turn)] for queue, found in queues.items()}


def _assert_returns_in_order(server: Server, home: str, away: str, seed: int, size: int) -> int:
    """Returns how many jobs a worker held that wait again among others."""
    family = get_family(home)
    # Of many jobs the queues in which workers hold some: elsewhere nothing but the positions decides.
    made = list(family.generate(size, seed, NOW))
    held = {job.queue for job in made if job.state is State.ACTIVE}
    client: redis.Redis = server.client(0)
    client.flushall()
    if not held:
        return 0
    store(client, family, family.default_prefix, [job for job in made if job.queue in held], NOW)
    urls = [server.url(db, family=name) for db, name in enumerate((home, away, home))]
    for source, target in pairwise(urls):
        for command in (["migrate", "--lossy"], ["verify"]):
            outcome = ferryman(*command, source, target, "--format", "json", "--now", str(NOW))
            assert outcome.status == 0, (command, outcome.stdout, outcome.stderr)
            if outcome.lines()[-1].get("written") == 0:
                return 0
    before, after = (list(LocalEngine().jobs(Address.parse(urls[db]), NOW)) for db in (0, 2))
    expected = _expected(before, TURNS[home])
    returned = {job.id: job.rank for job in after}
    assert returned == {job.id: job.rank for job in before if job.id in returned}, "no job changes its rank on the way"
    found = pop_orders(after)
    for queue, ids in expected.items():
        assert found.get(queue, []) == [job_id for job_id in ids if job_id in returned], (queue, home, away)
    return sum(job.state is State.ACTIVE and len(expected.get(job.queue, ())) > 1 for job in before)


PAIRS = [(home, away) for home in GENERATING for away in GENERATING if home != away]


@pytest.mark.parametrize(("home", "away"), PAIRS)
def test_jobs_that_workers_held_come_back_where_the_original_puts_them(server: Server, home: str, away: str) -> None:
    assert _assert_returns_in_order(server, home, away, seed=91, size=200)


@pytest.mark.slow
@pytest.mark.parametrize(("home", "away"), PAIRS)
@settings(deadline=None, max_examples=examples(10), suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), size=st.integers(50, 600))
def test_any_keyspace_comes_back_in_order(server: Server, home: str, away: str, seed: int, size: int) -> None:
    _assert_returns_in_order(server, home, away, seed, size)
