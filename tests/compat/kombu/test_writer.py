"""The kombu writer on real servers: what is written reads back, can be written again, and is what kombu itself writes."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
import redis
from attrs import evolve
from ferryman.compat.kombu import FAMILY
from ferryman.compat.kombu.keys import PROVEN, STEPS
from ferryman.schema.fact import Entry
from ferryman.schema.job import Job, State
from ferryman.schema.native import codec
from ferryman.testing.keyspaces import dump, read_keyspace, send
from hypothesis import assume, given
from hypothesis import strategies as st
from kombu import Connection

from ...support.captures import Capture, captures
from ...support.roundtrip import Roundtrip, on_a_server
from ...support.servers import Server
from . import messages, strategies
from .messages import NOW, bound, held, message, one, queued, text

pytestmark = pytest.mark.in_turn

at = Roundtrip(FAMILY, "", NOW)

each_capture = pytest.mark.parametrize("case", captures("kombu"), ids=str)


def read_all(entries: Iterable[Entry], prefix: str = "", now_ms: int = NOW) -> dict[tuple[str, str], Job]:
    return {(job.queue, job.id): job for job in messages.jobs(*entries, prefix=prefix, now_ms=now_ms)}


def standing(client: redis.Redis) -> dict[tuple[str, str], Job]:
    """The jobs that the server holds now."""
    return read_all(dump(client).values())


def values(client: redis.Redis) -> dict[bytes, object]:
    """All keys of the server."""
    return {key: entry.value for key, entry in dump(client).items()}


# Reading back


@on_a_server
@given(strategies.queues, st.data())
def test_what_stood_in_a_queue_is_written_back_byte_for_byte(client: redis.Redis, queue: str, data: st.DataObject) -> None:
    found = data.draw(st.lists(strategies.messages(queue), max_size=4, unique_by=lambda each: str(_tag(each))))
    spelled = [text(each).replace(b": ", b":") if data.draw(st.booleans()) else text(each) for each in found]
    step = data.draw(st.sampled_from([0, 3, 6, 9, 4, -2]))
    original = [queued(*spelled, queue=queue, step=step), bound(queue)]
    jobs = read_all(original).values()
    assume(len(jobs) == len(spelled) and all(job.state is not State.UNKNOWN for job in jobs))
    # An unusual bucket that a message's own priority proves is its application's; a target has the buckets of its own URL.
    assume(step in STEPS or not read_keyspace(FAMILY, original, "", NOW).keyspace.totals.names.get(PROVEN))
    client.flushdb()
    at.store(client, jobs)
    # kombu 5.7 lists a queue without expiry twice.
    expected = {entry.key: entry.value for entry in original if entry.value}
    if jobs:
        expected[b"_kombu.binding_permanent." + queue.encode()] = original[1].value
    assert values(client) == (expected if jobs else {})


def _tag(each: dict[str, object]) -> object:
    properties = each["properties"]
    assert isinstance(properties, dict)
    return properties["delivery_tag"]


@on_a_server
@given(strategies.jobs(), strategies.jobs())
def test_a_newer_version_of_a_waiting_job_replaces_the_older_one(client: redis.Redis, older: Job, newer: Job) -> None:
    newer = evolve(newer, id=older.id, queue=older.queue)
    assume(older.state is not State.ACTIVE and not at.errors(newer))
    client.flushdb()
    at.store(client, [newer])
    alone = dump(client)
    client.flushdb()
    at.store(client, [older, newer])
    assert {key: entry for key, entry in dump(client).items() if b"binding" not in key} == {
        key: entry for key, entry in alone.items() if b"binding" not in key
    }


# Captures


@each_capture
def test_a_keyspace_written_back_is_the_same_key_for_key(client: redis.Redis, case: Capture) -> None:
    original = {entry.key: entry for entry in case.entries()}
    jobs = read_all(original.values(), case.prefix, case.captured_at_ms)
    # Topic queues are bound to one exchange, with each other: both come back, because both have messages.
    at.of(case).store(client, jobs.values())
    written = dump(client)
    assert written.keys() == original.keys()
    for key, entry in original.items():
        value = sorted(entry.value) if entry.redis_type == "set" else entry.value
        assert (written[key].redis_type, written[key].value) == (entry.redis_type, value), key


@each_capture
def test_messages_of_kombu_meet_no_obstacle_in_kombu(case: Capture) -> None:
    for job in read_all(case.entries(), case.prefix, case.captured_at_ms).values():
        assert list(FAMILY.incompatibilities(job)) == []


@each_capture
def test_kombu_itself_pops_written_jobs_in_the_order_of_the_original(server: Server, client: redis.Redis, case: Capture) -> None:
    jobs = read_all(case.entries(), case.prefix, case.captured_at_ms)
    # The same jobs, and nothing of kombu's own: from another family, in any order.
    bare = [evolve(job, extra={name: value for name, value in job.extra.items() if name != "kombu"}) for job in jobs.values()]
    waiting = sorted((job for job in bare if job.state is State.WAITING), key=lambda job: job.id)
    at.store(client, waiting)
    with Connection(f"redis://{server.host}:{server.port}/0") as connection:
        channel = connection.channel()
        for queue in case.expected["pop_order"]:
            popped = []
            while (found := channel.basic_get(queue, no_ack=True)) is not None:
                popped.append(found.delivery_tag)
            assert popped == [job.id for job in sorted(waiting, key=lambda job: job.position or 0) if job.queue == queue]


# Beside what is there


def test_written_jobs_run_before_what_stands_in_the_queue_already(client: redis.Redis) -> None:
    client.lpush("celery", text(message("live-1")), b"junk", text(message("live-2")))
    first, second = (evolve(one(queued(message(tag))), position=position) for position, tag in enumerate("ab"))
    for _ in range(2):
        at.store(client, [second, first])
        found = [raw if raw == b"junk" else messages.jobs(queued(raw))[0].id for raw in client.lrange("celery", 0, -1)]
        assert found == ["live-2", b"junk", "live-1", "b", "a"]


def test_until_all_is_written_consumers_see_nothing_and_an_audit_says_why(client: redis.Redis) -> None:
    send(client, FAMILY.write(one(queued(message())), at.target))
    assert client.exists("celery") == 0
    findings = at.findings(client)
    assert {finding.rule for finding in findings} == {"KOMBU-9"}


def test_a_long_queue_comes_in_its_order(client: redis.Redis) -> None:
    jobs = [evolve(one(queued(message(f"{number:05}"))), position=number) for number in range(3000)]
    at.store(client, reversed(jobs))
    assert client.llen("celery") == 3000
    assert [job.id for job in standing(client).values()] == [job.id for job in jobs]


# What a job has become since it was read


def read_one(client: redis.Redis, job: Job) -> Job:
    client.flushdb()
    at.store(client, [job])
    [found] = standing(client).values()
    return found


def test_a_requeued_message_waits_as_kombu_would_have_it(client: redis.Redis) -> None:
    taken = one(*held(message()), bound())
    extra = {name: value for name, value in taken.extra.items() if name != "kombu"}
    waiting = evolve(taken, state=State.WAITING, lease_expires_at=None, extra=extra)
    assert read_one(client, waiting) == waiting
    assert client.exists("unacked") == 0
    assert client.llen("celery") == 1


def test_a_foreign_active_job_waits_in_kombu(client: redis.Redis) -> None:
    job = Job(id="1", queue="t", name="t", state=State.ACTIVE, payload=b"{}", started_at=NOW)
    assert [finding.rule for finding in FAMILY.incompatibilities(job)] == ["KOMBU-W8"]
    assert read_one(client, job) == evolve(job, state=State.WAITING)


def test_a_job_that_was_promoted_runs_at_once_though_its_message_says_later(client: redis.Redis) -> None:
    later = one(queued(message(eta="2031-01-01T00:00:00+00:00")), bound())
    assert later.state is State.SCHEDULED
    now = evolve(later, state=State.WAITING)
    assert read_one(client, now) == now
    moved = evolve(later, due_at=NOW + 5000)
    assert read_one(client, moved) == moved


def test_what_overflowed_from_one_message_is_not_believed_of_the_next_try(client: redis.Redis) -> None:
    job = Job(id="1", queue="t", name="t", state=State.WAITING, payload=b"{}", created_at=5, error="E", tags=("a",), logs=(b"x",))
    assert read_one(client, job) == job
    [raw] = client.lrange("t", 0, -1)
    again = one(Entry(b"t", "list", [raw.replace(b'"delivery_tag": "1"', b'"delivery_tag": "2"')]))
    assert (again.id, again.created_at, again.error, again.tags, again.logs) == ("2", None, None, ("a",), ())
    assert again.payload != job.payload


def test_a_header_of_an_application_that_has_our_name_is_just_a_header(client: redis.Redis) -> None:
    job = one(queued(message(ferryman="mine")), bound())
    assert codec.decode(job.extra["ferryman"]["head"] + b"\n")[0]["headers"]["ferryman"] == "mine"
    assert read_one(client, job) == job
    changed = evolve(job, created_at=5)
    assert read_one(client, changed) == changed


def test_a_header_that_only_looks_like_ours_is_carried_like_any_other(client: redis.Redis) -> None:
    made = Job(id="1", queue="t", name="t", state=State.WAITING, payload=b"{}", created_at=5, extra={"qless": {"x": 1}})
    read_one(client, made)
    [raw] = client.lrange("t", 0, -1)
    value = json.loads(raw)
    head = {name: value[name] for name in ("content-type", "content-encoding", "headers", "properties")}
    forged = evolve(SIMPLE, extra={"ferryman": {"head": codec.encode(head, b"")[:-1]}})
    assert read_one(client, forged) == forged


def test_a_job_of_another_system_becomes_the_message_of_a_celery_task(server: Server, client: redis.Redis) -> None:
    job = Job(id="7", queue="mail", name="send", state=State.WAITING, payload=b'{"to": 1}', attempts=1, ttl=300_000, rank=5)
    at.store(client, [job])
    assert client.llen("mail\x06\x163") == 1
    with Connection(f"redis://{server.host}:{server.port}/0") as connection:
        found = connection.channel().basic_get("mail", no_ack=True)
    assert found.payload[0] == [{"to": 1}]
    assert (found.headers["task"], found.headers["id"], found.headers["retries"]) == ("send", "7", 1)
    assert found.headers["timelimit"] == [300, None]


# What kombu can't hold

SIMPLE = Job(id="1", queue="t", name="t", state=State.WAITING, payload=b"{}")


@pytest.mark.parametrize(
    ("job", "rule", "severity"),
    [
        (evolve(SIMPLE, id=""), "KOMBU-W1", "error"),
        (evolve(SIMPLE, queue=""), "KOMBU-W2", "error"),
        (evolve(SIMPLE, queue="\udcff"), "KOMBU-W2", "error"),
        (evolve(SIMPLE, queue="unacked"), "KOMBU-W2", "error"),
        (evolve(SIMPLE, queue="_kombu.binding.x"), "KOMBU-W2", "error"),
        (evolve(SIMPLE, queue="a\x06\x16b"), "KOMBU-W2", "error"),
        (evolve(SIMPLE, queue="w.celery.pidbox"), "KOMBU-W2", "error"),
        (evolve(SIMPLE, state=State.FAILED), "KOMBU-W3", "error"),
        (evolve(SIMPLE, state=State.UNKNOWN), "KOMBU-W3", "error"),
        (evolve(SIMPLE, payload=b"\x80"), "KOMBU-W4", "error"),
        (evolve(SIMPLE, payload=None), "KOMBU-W4", "error"),
        (evolve(SIMPLE, name=""), "KOMBU-W4", "error"),
        (evolve(SIMPLE, state=State.SCHEDULED), "KOMBU-W5", "error"),
        (evolve(SIMPLE, state=State.SCHEDULED, due_at=2**60), "KOMBU-W5", "error"),
        (evolve(SIMPLE, tags=("a",)), "KOMBU-W6", "warning"),
        (evolve(SIMPLE, extra={"kombu": {"step": "3"}}), "KOMBU-W7", "error"),
        (evolve(SIMPLE, extra={"kombu": {"bindings": [["a"]]}}), "KOMBU-W7", "error"),
        (evolve(SIMPLE, extra={"kombu": []}), "KOMBU-W7", "error"),
        (evolve(SIMPLE, extra={"ferryman": {"head": b"no json"}}), "KOMBU-W7", "error"),
        (evolve(SIMPLE, extra={"ferryman": {"head": b'{"headers": []}'}}), "KOMBU-W7", "error"),
        (evolve(SIMPLE, state=State.ACTIVE), "KOMBU-W8", "warning"),
    ],
)
def test_what_kombu_cant_express_is_named(job: Job, rule: str, severity: str) -> None:
    assert [(finding.rule, finding.severity) for finding in FAMILY.incompatibilities(job)] == [(rule, severity)]
