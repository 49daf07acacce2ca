"""kombu 4.6.8 alone kept the priority buckets of a queue in lists with its name in braces: they are read as that queue's."""

from __future__ import annotations

import pytest
import redis
from ferryman.migrations.engine import Engine
from ferryman.migrations.engine.memory_engine import MemoryEngine
from ferryman.migrations.engine.process_engine import ProcessEngine
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address
from ferryman.schema.rule import Finding
from kombu import Connection, Exchange, Queue

from ...support.servers import Server
from .messages import NOW

pytestmark = pytest.mark.in_turn

PRIORITIES = (0, 3, 6, 9)


def publish(server: Server, queue: str, exchange: str) -> None:
    """Two messages of each priority, with today's kombu."""
    with Connection(f"redis://{server.host}:{server.port}/0") as connection, connection.channel() as channel:
        producer = connection.Producer(channel)
        declared = Queue(queue, Exchange(exchange), queue)
        for priority in (*PRIORITIES, *PRIORITIES):
            producer.publish(
                {"priority": priority}, exchange=exchange, routing_key=queue, priority=priority, declare=[declared], retry=False
            )


def name_as_4_6_8_does(client: redis.Redis, queue: str) -> None:
    """Renames the lists of the buckets above 0."""
    for priority in PRIORITIES[1:]:
        client.rename(f"{queue}\x06\x16{priority}", f"{{{queue}}}\x06\x16{priority}")


@pytest.mark.parametrize("engine", [MemoryEngine(), ProcessEngine(tasks=2)], ids=["memory", "processes"])
@pytest.mark.parametrize("exchange", ["", "celery"], ids=["by name", "by an exchange"])
def test_braced_buckets_are_those_of_the_queue_without_braces(
    server: Server, client: redis.Redis, engine: Engine, exchange: str
) -> None:
    publish(server, "celery", exchange)
    name_as_4_6_8_does(client, "celery")
    source, target = Address.parse(server.url(family="kombu")), Address.parse(server.url(1))
    findings: list[Finding] = []
    engine.audit(source, NOW, findings.append)
    assert findings == []
    plan = Plan.between(source, target, NOW)
    assert engine.migrate(source, target, plan, findings.append).written == 8
    assert engine.verify(source, target, plan, lambda _: None).matched == 8
    carried = list(LocalEngine().jobs(target, NOW))
    assert {job.queue for job in carried} == {"celery"}
    assert [job.priority for job in carried] == sorted(PRIORITIES * 2)
    with server.client(1) as other:
        other.flushdb()


def test_a_queue_that_is_bound_with_its_braces_keeps_them(server: Server, client: redis.Redis) -> None:
    publish(server, "{celery}", "celery")
    publish(server, "celery", "celery")
    assert client.exists("{celery}\x06\x163", "celery\x06\x163") == 2
    jobs = list(LocalEngine().jobs(Address.parse(server.url(family="kombu")), NOW))
    assert sorted(job.queue for job in jobs) == ["celery"] * 8 + ["{celery}"] * 8
