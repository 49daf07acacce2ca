"""Every rule can be broken at one message, is then all that an audit says, and goes silent again where commands mend it."""

from __future__ import annotations

import redis
from ferryman.compat.kombu import FAMILY
from ferryman.compat.kombu.keys import layout
from ferryman.migrations.repair import Outcome
from ferryman.schema.job import State

from ...support.mending import stored_in
from ...support.servers import Server

RULES = sorted({rule.id for rule in FAMILY.rules})


def test_a_lock_without_end_is_deleted(server: Server, client: redis.Redis) -> None:
    stored = stored_in(server, client, FAMILY, "")
    stored.generate(10, 1)
    mutex = layout("").key("mutex")
    client.set(mutex, "token")
    assert [each.outcome for each in stored.repair("KOMBU-5")] == [Outcome.MENDED]
    assert client.exists(mutex) == 0


def test_of_several_copies_the_first_in_order_stays(server: Server, client: redis.Redis) -> None:
    stored = stored_in(server, client, FAMILY, "")
    job = next(job for job in stored.generate(40, 1) if job.state is State.WAITING)
    before = client.lrange(job.queue, 0, -1)
    for _ in range(3):
        stored.inject("KOMBU-3", job)
    assert [each.outcome for each in stored.repair("KOMBU-3")] == [Outcome.MENDED]
    assert client.lrange(job.queue, 0, -1) == before


def test_a_message_that_waits_and_is_held_is_left_to_people(server: Server, client: redis.Redis) -> None:
    stored = stored_in(server, client, FAMILY, "")
    job = next(job for job in stored.generate(300, 1) if job.state is State.ACTIVE)
    delivery = client.hget("unacked", job.id)
    assert delivery is not None
    client.lpush(job.queue, delivery[1 : delivery.rindex(b'}, "') + 1])
    assert {each.outcome for each in stored.repair("KOMBU-3")} == {Outcome.UNMENDABLE}
