"""From ``redis://`` to ``ferryman://``: captured keyspaces, and queues that a real Celery wrote and left behind.

A message must arrive as the message that it was: real workers run it, with the same body, headers and properties.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from celery import Celery
from ferryman.testing.keyspaces import dump
from ferryman.transport import Transport  # noqa: F401 - registers the URL schemes
from kombu import Connection, Exchange, Producer, Queue

from ...support.captures import Capture, captures, load
from ...support.command import Outcome, ferryman
from ...support.servers import Server
from ...support.workers import Ledger, worker
from .messages import held, message

pytestmark = pytest.mark.in_turn

NOTE = "tests.support.tasks.note"
NAP = "tests.support.tasks.nap"
TARGET_DB = 2
NATIVE = "ferryman"

each_capture = pytest.mark.parametrize("case", captures("kombu"), ids=str)


def migrate(source: str, target: str, *options: str) -> dict[str, Any]:
    """Migrates, verifies, and gives the summary."""
    outcome = ferryman("migrate", source, target, "--format", "json", *options)
    assert outcome.status == 0, outcome.stderr
    assert differences(source, target) == []
    return outcome.lines()[-1]


def differences(source: str, target: str) -> list[dict[str, Any]]:
    """What verify finds."""
    outcome: Outcome = ferryman("verify", source, target, "--format", "json")
    return outcome.lines()[:-1]


# Captures


@pytest.mark.parametrize("family", [NATIVE, "kombu"])
@each_capture
def test_a_captured_keyspace_migrates_and_verifies(server: Server, case: Capture, family: str) -> None:
    with server.client() as client:
        load(case, client)
        before = dump(client)
        source = server.url(0, family="kombu", prefix=case.prefix)
        summary = migrate(source, server.url(TARGET_DB, family=family, prefix="new"), "--now", str(case.captured_at_ms))
        assert (summary["read"], summary["written"], summary["refused"]) == (36, 36, {})
        assert summary["by_state"] == {"active": 5, "scheduled": 2, "waiting": 29}
        assert dump(client) == before


@each_capture
def test_what_went_to_a_native_keyspace_comes_back_to_kombu(server: Server, case: Capture) -> None:
    with server.client() as client, server.client(3) as returned:
        load(case, client)
        parse_timestamp = ("--now", str(case.captured_at_ms))
        there, back = server.url(TARGET_DB), server.url(3, family="kombu", prefix=case.prefix)
        migrate(server.url(0, family="kombu", prefix=case.prefix), there, *parse_timestamp)
        migrate(there, back, *parse_timestamp)
        before, after = dump(client), dump(returned)
        for key, entry in before.items():
            if entry.redis_type == "list":
                # What a consumer had waits again, and so runs before the rest; as do those that whoever takes them must keep.
                undelayed = [[raw for raw in each if b'"eta": "' not in raw] for each in (entry.value, after[key].value)]
                assert undelayed[1][: len(undelayed[0])] == undelayed[0]
                assert set(entry.value) <= set(after[key].value)


def test_a_keyspace_may_be_carried_within_its_database(server: Server) -> None:
    with server.client() as client, Connection(redis_url(server)) as connection:
        SimpleTask(connection).send("a")
        client.rpush("app:list", "x")
        migrate(server.url(0, family="kombu"), server.url(0))
        assert client.zcard("ferryman:{celery}:waiting") == 1
        # A second look at the source does not take the target for a part of it.
        assert ferryman("jobs", server.url(0, family="kombu"), "--format", "json").stdout.count("\n") == 1


def test_what_nobody_could_run_stays_at_the_source_and_is_named(server: Server) -> None:
    with server.client() as client, Connection(redis_url(server)) as connection:
        SimpleTask(connection).send("a")
        client.lpush("celery", "junk")
        summary = migrate(server.url(0, family="kombu"), server.url(TARGET_DB))
        assert (summary["read"], summary["written"]) == (2, 1)
        assert list(summary["refused"]) == ["KOMBU-1"]


def test_a_task_that_a_worker_kept_until_it_is_due_is_scheduled_and_not_handed_to_the_next_worker(server: Server) -> None:
    with server.client() as client, server.client(TARGET_DB) as target:
        load([*held(message(eta="2031-01-01T00:00:00+00:00"))], client)
        assert migrate(server.url(0, family="kombu"), server.url(TARGET_DB))["requeued"] == 1
        assert target.zrange("ferryman:{celery}:scheduled", 0, -1, withscores=True) == [(b"tag-1", 1924992000000.0)]


# Messages as kombu sees them


def redis_url(server: Server, db: int = 0) -> str:
    """The address of the stock transport."""
    return f"redis://{server.host}:{server.port}/{db}"


class SimpleTask:
    """Publishes without Celery."""

    def __init__(self, connection: Connection) -> None:
        self.producer = Producer(connection.channel())

    def send(self, value: object, **options: Any) -> None:
        """To the queue ``celery``, unless the options say otherwise."""
        self.producer.publish([[value], {}, {}], **{"routing_key": "celery", "serializer": "json", **options})


def received(connection: Connection, queue: str) -> Iterator[Any]:
    """Every message of a queue, as a consumer gets it."""
    channel = connection.channel()
    while (message := channel.basic_get(queue, no_ack=True)) is not None:
        yield message


def test_body_content_type_headers_and_properties_arrive_as_kombu_itself_would_deliver_them(server: Server) -> None:
    with Connection(redis_url(server)) as old:
        producer = SimpleTask(old)
        producer.send("json", priority=9, headers={"x-tenant": "acme", "nested": {"ü": [1, None]}}, correlation_id="c-1")
        producer.send("zip", compression="gzip", reply_to="r-1", priority=0)
        producer.send("pickle", serializer="pickle", expiration=60.0, message_id="m-1")
        producer.producer.publish(
            b"\x00\xff raw", routing_key="celery", content_type="application/data", content_encoding="binary"
        )
        news = Exchange("news", type="topic", channel=old.channel())
        Queue("sports", news, routing_key="*.sports", channel=old.channel()).declare()
        producer.send("topic", exchange=news, routing_key="tv.sports")
        migrate(server.url(0, family="kombu"), server.url(TARGET_DB))
        before = {queue: list(received(old, queue)) for queue in ("celery", "sports")}
    with Connection(server.url(TARGET_DB)) as new:
        after = {queue: list(received(new, queue)) for queue in before}
    assert [len(each) for each in before.values()] == [len(each) for each in after.values()] == [4, 1]
    for queue in before:
        for theirs, ours in zip(before[queue], after[queue], strict=True):
            assert bytes(ours.body) == (theirs.body.encode() if isinstance(theirs.body, str) else theirs.body)
            assert (ours.content_type, ours.content_encoding) == (theirs.content_type, theirs.content_encoding)
            assert ours.headers == theirs.headers
            assert ours.properties == {name: value for name, value in theirs.properties.items() if name != "body_encoding"}
            same = ("exchange", "routing_key")
            assert [ours.delivery_info[name] for name in same] == [theirs.delivery_info[name] for name in same]
            assert not ours.delivery_info["redelivered"]
    assert after["celery"][0].properties["priority"] == 0
    assert after["celery"][1].properties["priority"] == 0
    assert [message.properties["priority"] for message in after["celery"]] == [0, 0, 0, 9]


# Real workers


@pytest.fixture
def ledger(server: Server) -> Ledger:
    return Ledger(server)


def celery_on(url: str) -> Celery:
    """An app like the one whose tasks the workers run."""
    return Celery(broker=url, task_ignore_result=True)


def test_a_worker_runs_the_tasks_that_celery_left_in_its_order(server: Server, ledger: Ledger, tmp_path: Path) -> None:
    due = datetime.now(UTC) + timedelta(seconds=6)
    with celery_on(redis_url(server)) as app:
        app.send_task(NOTE, ["priority 9"], priority=9)
        app.send_task(NOTE, ["later"], eta=due)
        app.send_task(NOTE, ["first"])
        app.send_task(NOTE, ["zipped"], compression="zlib", headers={"x-tenant": "acme"})
        app.send_task(NOTE, kwargs={"name": {"ü": ['quoted "\n', None, 1.5]}}, expires=3600)
        app.send_task(NOTE, ["too late"], expires=datetime.now(UTC) - timedelta(seconds=5))
        app.send_task(NOTE, ["tried before"], retries=57, time_limit=300, priority=3)
    summary = migrate(server.url(0, family="kombu"), server.url(TARGET_DB))
    assert summary["by_state"] == {"scheduled": 1, "waiting": 6}
    with worker(server, tmp_path, pool="solo", prefetch=1, broker=server.url(TARGET_DB)) as running:
        lines = ledger.wait_for("run", 6)
        assert running.stop() == 0
    names = [line["name"] for line in lines]
    (later,) = (line["at"] for line in lines if line["name"] == "later")
    assert later >= due.timestamp() - 0.1
    names.remove("later")  # on a slow machine it is due before the worker has begun
    assert names == ["first", "zipped", {"ü": ['quoted "\n', None, 1.5]}, "tried before", "priority 9"]
    assert "Traceback" not in running.log.read_text()
    with server.client(TARGET_DB) as client:
        assert list(client.scan_iter("*:job:*")) == []


def test_tasks_of_a_killed_worker_run_once_more_and_all_others_once(server: Server, ledger: Ledger, tmp_path: Path) -> None:
    with celery_on(redis_url(server)) as app:
        for number in range(6):
            app.send_task(NAP, [number, 0.5 if number else 60.0])
    with worker(server, tmp_path, pool="solo", late=1, prefetch=2, broker=redis_url(server), name="old") as old:
        ledger.wait_for("start", 1)
        old.kill()
    with server.client() as client:
        taken = client.hlen("unacked")
    assert taken >= 1
    summary = migrate(server.url(0, family="kombu"), server.url(TARGET_DB))
    assert (summary["written"], summary["requeued"]) == (6, taken)
    with worker(server, tmp_path, pool="threads", concurrency=4, late=1, broker=server.url(TARGET_DB), name="new"):
        ledger.wait(lambda lines: {line["name"] for line in lines if line["event"] == "end"} >= {1, 2, 3, 4, 5})
        ledger.wait_for("start", 7)
    starts = ledger.names("start")
    assert sorted(starts) == [0, 0, 1, 2, 3, 4, 5]
