"""Generated messages: the same for everybody, sound, carried by the writer without loss, and fit for Celery."""

from __future__ import annotations

import json
import zlib
from collections import Counter

import redis
from ferryman.compat.kombu import FAMILY
from ferryman.compat.kombu.generate import QUEUES, STATES, generate
from ferryman.schema.family import Target
from ferryman.schema.job import State
from ferryman.schema.native import codec

from ...support.captures import dump, survey
from .messages import NOW
from .test_writer import read_all, store


def test_the_same_seed_gives_the_same_jobs_and_another_one_others() -> None:
    assert list(generate(50, 7, NOW)) == list(generate(50, 7, NOW))
    assert list(generate(50, 7, NOW)) != list(generate(50, 8, NOW))


def test_all_queues_and_states_occur_in_about_their_shares() -> None:
    jobs = list(generate(5000, 1, NOW))
    queues, states = Counter(job.queue for job in jobs), Counter(job.state for job in jobs)
    assert all(abs(queues[queue] / 50 - share) < 3 for queue, share in QUEUES)
    assert all(abs(states[state] / 50 - share) < 3 for state, share in STATES)
    assert len({job.id for job in jobs}) == 5000
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


def test_the_writer_carries_every_generated_job_in_order(client: redis.Redis) -> None:
    jobs = {(job.queue, job.id): job for job in generate(500, 3, NOW)}
    assert all(list(FAMILY.obstacles(job)) == [] for job in jobs.values())
    store(client, jobs.values(), Target("", NOW))
    standing = read_all(dump(client).values())
    assert standing == jobs
    for queue, _ in QUEUES:
        order = [job.id for job in standing.values() if job.queue == queue and job.state is not State.ACTIVE]
        expected = [job for job in jobs.values() if job.queue == queue and job.state is not State.ACTIVE]
        assert order == [job.id for job in sorted(expected, key=lambda job: (job.rank or 0, job.position or 0))]


def test_an_audit_of_generated_jobs_finds_nothing(client: redis.Redis) -> None:
    store(client, generate(500, 4, NOW), Target("", NOW))
    assert survey(FAMILY, dump(client).values(), "", NOW).findings() == []
