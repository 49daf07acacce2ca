"""Every rule can be broken at one job, is then all that an audit says, and goes silent again where commands mend it."""

from __future__ import annotations

import math

import redis
from ferryman.migrations.repair import Outcome
from ferryman.schema.job import State
from ferryman.schema.native import FAMILY
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from ...support.mending import NOW, stored_in
from ...support.native import LEASE, Send
from ...support.servers import Server

RULES = [rule.id for rule in FAMILY.rules]


def test_what_a_holder_without_lease_held_is_taken_by_the_next_consumer(server: Server, client: redis.Redis, send: Send) -> None:
    stored = stored_in(server, client, FAMILY, "ferryman")
    job = next(job for job in stored.generate(60, 1) if job.state is State.ACTIVE)
    stored.inject("NATIVE-4", job)
    assert {each.outcome for each in stored.repair("NATIVE-4")} == {Outcome.MENDED}
    taken = send(QueueScripts().take(job.queue, "another", 100, LEASE, now=NOW + 1))
    assert job.id in {each.id for each in taken.jobs}


def test_what_a_holder_held_whose_lease_never_ends_is_taken_by_the_next_consumer(
    server: Server, client: redis.Redis, send: Send
) -> None:
    stored = stored_in(server, client, FAMILY, "ferryman")
    job = next(job for job in stored.generate(60, 1) if job.state is State.ACTIVE)
    client.zadd(QueueScripts().keys(job.queue).consumers, {job.worker or "": math.inf})
    assert {each.outcome for each in stored.repair("NATIVE-4")} == {Outcome.MENDED}
    taken = send(QueueScripts().take(job.queue, "another", 100, LEASE, now=NOW + 1))
    assert job.id in {each.id for each in taken.jobs}


def test_several_jobs_without_a_place_get_one_token_together(server: Server, client: redis.Redis) -> None:
    stored = stored_in(server, client, FAMILY, "ferryman")
    jobs = [job for job in stored.generate(60, 1) if job.state is State.WAITING and job.queue == "celery"]
    for job in jobs:
        stored.inject("NATIVE-2", job)
    client.delete("ferryman:{celery}:wake")
    assert {each.outcome for each in stored.repair("NATIVE-2")} == {Outcome.MENDED}
    assert client.llen("ferryman:{celery}:wake") == 1
    assert client.zcard("ferryman:{celery}:waiting") == len(jobs)
