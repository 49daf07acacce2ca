"""What generated messages are like, beside what holds in every family: fit for Celery."""

from __future__ import annotations

import json
import zlib
from collections import Counter

import redis
from ferryman.compat.kombu import FAMILY
from ferryman.compat.kombu.generate import QUEUES, STATES, generate
from ferryman.schema.job import State
from ferryman.schema.native import codec
from ferryman.testing.keyspaces import dump, read_keyspace, store

from ...support.families import assert_in_shares
from .messages import NOW


def test_all_queues_and_states_occur_in_about_their_shares() -> None:
    jobs = list(generate(5000, 1, NOW))
    assert_in_shares((job.queue for job in jobs), QUEUES, within=3)
    assert_in_shares((job.state for job in jobs), STATES, within=3)
    sizes = sorted(len(job.payload or b"") for job in jobs)
    assert 100 < sizes[2500] < 500
    assert sizes[-1] > 4000


def test_bodies_are_what_their_heads_say() -> None:
    kinds: Counter[tuple[str, str | None]] = Counter()
    for job in generate(2000, 2, NOW):
        head, _ = codec.decode(job.extra["ferryman"]["head"] + b"\n")
        kind = (head["content-type"], head["headers"].get("compression"))
        kinds[kind] += 1
        if head["content-type"] == "application/json":
            args, kwargs, embed = json.loads(zlib.decompress(job.payload or b"") if kind[1] else job.payload or b"")
            assert (len(args), kwargs.keys(), embed.keys()) == (2, {"ok", "nested"}, {"callbacks", "errbacks", "chain", "chord"})
    assert len(kinds) == 3


def test_messages_of_a_queue_stand_by_priority_and_in_the_order_of_their_making(client: redis.Redis) -> None:
    jobs = list(generate(500, 3, NOW))
    store(client, FAMILY, "", jobs, NOW)
    standing = sorted(read_keyspace(FAMILY, dump(client).values(), "", NOW).jobs(), key=lambda job: job.position or 0)
    for queue, _ in QUEUES:
        order = [job.id for job in standing if job.queue == queue and job.state is not State.ACTIVE]
        expected = [job for job in jobs if job.queue == queue and job.state is not State.ACTIVE]
        assert order == [job.id for job in sorted(expected, key=lambda job: (job.rank or 0, job.position or 0))]
