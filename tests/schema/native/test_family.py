"""The native family: what it writes it reads back, what the scripts write goes back byte for byte, and damage is named."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from attrs import evolve
from ferryman.schema.fact import Entry, Fact, join
from ferryman.schema.family import Keyspace, Target, get_family
from ferryman.schema.job import Job, State
from ferryman.schema.native import FAMILY, keys
from ferryman.schema.native.keys import QueueKeys
from ferryman.schema.native.overflow import job_of, stored_with_overflow
from ferryman.schema.native.record import Passthrough
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.schema.rule import Finding
from ferryman.schema.totals import Totals
from hypothesis import given, settings
from hypothesis import strategies as st

from ...support.effort import examples
from ...support.native import LEASE, Send

PREFIX = "ferryman"
NOW = 1_700_000_000_000
scripts = QueueScripts()
q = scripts.keys("q")


# Reading a keyspace as the engines do


def entries(client: redis.Redis) -> Iterator[Entry]:
    """Every key with its value."""
    raw: Any = client
    for key in sorted(raw.scan_iter()):
        kind = raw.type(key).decode()
        values = {
            "string": raw.get,
            "hash": raw.hgetall,
            "list": lambda key: raw.lrange(key, 0, -1),
            "set": lambda key: list(raw.smembers(key)),
            "zset": lambda key: raw.zrange(key, 0, -1, withscores=True),
        }
        ttl = raw.pttl(key)
        yield Entry(key, kind, values.get(kind, lambda _key: None)(key), None if ttl < 0 else ttl)


def read_all(client: redis.Redis, prefix: str = PREFIX) -> tuple[dict[str, Job], list[Finding]]:
    """The jobs by id and all findings."""
    totals = Totals()
    grouped: defaultdict[tuple[str, str], list[Fact]] = defaultdict(list)
    for entry in entries(client):
        for fact in FAMILY.facts(entry, prefix):
            FAMILY.tally(fact, totals)
            if fact.job_id is not None:
                grouped[fact.scope, fact.job_id].append(fact)
    keyspace = Keyspace(FAMILY, prefix, NOW, totals)
    findings = list(FAMILY.keyspace_findings(keyspace))
    jobs = {}
    for facts in grouped.values():
        subject = join(facts)
        findings += FAMILY.findings(subject, keyspace)
        job = FAMILY.read(subject, keyspace)
        if job is not None:
            jobs[job.id] = job
    return jobs, findings


def write_all(client: redis.Redis, jobs: list[Job], prefix: str = PREFIX) -> None:
    """Stores jobs as a migration does."""
    target = Target(prefix, NOW)
    totals = Totals()
    for job in jobs:
        assert list(FAMILY.incompatibilities(job)) == []
        FAMILY.tally_written(job, totals)
        for command in FAMILY.write(job, target):
            client.execute_command(*command)
    for command in FAMILY.finish(target, totals):
        client.execute_command(*command)


def rules(findings: list[Finding]) -> set[str]:
    return {finding.rule for finding in findings}


# Jobs of every family

texts = st.text(max_size=8)
names = st.text(min_size=1, max_size=8)
times = st.none() | st.integers(0, 2**45)
numbers = st.none() | st.integers(-(2**62), 2**62)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False) | texts | st.binary(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(texts, values, max_size=3)

jobs = st.builds(
    Job,
    id=names,
    queue=names,
    name=texts,
    state=st.sampled_from([state for state in State if state is not State.UNKNOWN]),
    priority=numbers | st.floats(allow_nan=False),
    payload=st.none() | st.binary(max_size=20),
    created_at=times,
    updated_at=times,
    due_at=times,
    started_at=times,
    finished_at=times,
    attempts=numbers,
    max_attempts=numbers,
    progress=st.none() | st.floats(0, 1),
    result=st.none() | st.binary(max_size=8),
    error=st.none() | texts,
    worker=names,
    lease_expires_at=st.integers(0, 2**45),
    tags=st.lists(texts, max_size=3).map(tuple),
    depends_on=st.lists(names, min_size=1, max_size=3).map(tuple),
    unique_key=st.none() | texts,
    ttl=numbers,
    logs=st.lists(st.binary(max_size=8), max_size=3).map(tuple),
    history=st.lists(objects, max_size=2).map(tuple),
    extra=st.dictionaries(st.sampled_from(["kue", "qless", "migration"]), objects, max_size=2),
    position=st.none() | st.integers(0, 2**40),
)


@given(jobs)
def test_a_job_of_any_family_is_stored_and_read_back(job: Job) -> None:
    assert list(FAMILY.incompatibilities(job)) == []
    stored = stored_with_overflow(job, Passthrough.of(job))
    assert job_of(job.id, job.queue, stored) == job


@settings(max_examples=examples(30))
@given(st.lists(jobs, min_size=1, max_size=5, unique_by=lambda job: job.id))
def test_jobs_written_to_a_server_are_read_back_however_often(any_server: Any, found: list[Job]) -> None:
    found = [evolve(job, queue="q", worker=f"w{job.id}") for job in found]
    with any_server.client(db=3) as client:
        client.flushdb()
        write_all(client, found)
        once = sorted((entry.key, repr(entry.value)) for entry in entries(client))
        write_all(client, found)
        assert sorted((entry.key, repr(entry.value)) for entry in entries(client)) == once
        assert read_all(client)[0] == {job.id: job for job in found}


def test_waiting_jobs_keep_their_order_and_newer_ones_come_after(send: Send, client: redis.Redis) -> None:
    found = [
        Job(f"j{n}", "q", "email", State.WAITING, priority=priority, payload=b"{}", position=n)
        for n, priority in enumerate([5, 1.5, -9, None])
    ]
    write_all(client, found[::-1])
    assert send(scripts.publish("q", "p", [Publication("p-1", b"{}\n")])).fresh == (True,)
    taken = send(scripts.take("q", "ann", 9, LEASE))
    assert [job.id for job in taken.jobs] == ["j0", "j1", "j2", "j3", "p-1"]
    assert taken.jobs[0].fields[b"payload"] == b"{}"
    assert taken.jobs[0].fields[b"name"] == b"email"


def test_a_written_job_that_was_taken_and_put_back_keeps_what_lasts_and_tells_what_is_new(
    send: Send, client: redis.Redis
) -> None:
    write_all(client, [Job("j", "q", "email", State.WAITING, 7, b"{}", attempts=2, tags=("a",), extra={"kue": {"x": b"\xff"}})])
    send(scripts.take("q", "ann", 1, LEASE, now=NOW))
    held = read_all(client)[0]["j"]
    assert (held.state, held.worker, held.lease_expires_at, held.attempts) == (State.ACTIVE, "ann", NOW + LEASE, 3)
    assert (held.priority, held.tags, held.extra) == (7, ("a",), {"kue": {"x": b"\xff"}})
    send(scripts.requeue("q", "ann", ["j"]))
    back = read_all(client)[0]["j"]
    assert (back.state, back.attempts, back.started_at, back.worker) == (State.WAITING, 3, NOW, None)


@pytest.fixture
def busy(send: Send, client: redis.Redis) -> redis.Redis:
    """A queue with a job in every place that the scripts know."""
    message = b'{"headers":{"task":"app.mail"},"properties":{}}\n[[1],{}]'
    send(scripts.declare("q", {"x-retention": 10**9}, "descending"))
    client.sadd(keys.queues(PREFIX), "q")
    batch = [Publication(f"p-{n}", message, priority=n % 3, ttl_ms=10**9 if n == 4 else None) for n in range(8)]
    send(scripts.publish("q", "p", [*batch, Publication("p-8", message, 5, due_ms=NOW + 5)], now=NOW - 9))
    taken = [job.id for job in send(scripts.take("q", "ann", 4, LEASE, now=NOW)).jobs]
    send(scripts.ack("q", "ann", taken[:1], now=NOW))
    send(scripts.reject("q", "ann", taken[1], "rejected", "no", now=NOW))
    send(scripts.requeue("q", "ann", taken[2:3], now=NOW))
    return client


def test_what_the_scripts_write_is_healthy(busy: redis.Redis) -> None:
    found, findings = read_all(busy)
    assert findings == []
    assert sorted(job.state for job in found.values()) == sorted(
        [State.ACTIVE, State.COMPLETED, State.FAILED, State.SCHEDULED, *[State.WAITING] * 5]
    )
    scheduled = found["p-8"]
    assert (scheduled.name, scheduled.priority, scheduled.due_at, scheduled.payload) == ("app.mail", 5, NOW + 5, b"[[1],{}]")


def test_native_jobs_go_back_byte_for_byte(busy: redis.Redis) -> None:
    found, _ = read_all(busy)
    write_all(busy, list(found.values()), "copy")
    copy = QueueKeys("copy", "q")
    for job in found:
        assert busy.hgetall(copy.job(job)) == busy.hgetall(q.job(job))
    for role in ("waiting", "scheduled", "dead", "done", "consumers"):
        old: Any = busy.zrange(getattr(q, role), 0, -1, withscores=True)
        assert busy.zrange(getattr(copy, role), 0, -1, withscores=True) == old
    assert read_all(busy, "copy")[0] == found


def test_waiting_jobs_are_numbered_in_pop_order(busy: redis.Redis, send: Send) -> None:
    found, _ = read_all(busy)
    order = sorted((job for job in found.values() if job.state is State.WAITING), key=lambda job: job.position or 0)
    taken = send(scripts.take("q", "bob", 9, LEASE, now=NOW))
    assert [job.id for job in order] == [job.id for job in taken.jobs]


# Faults

FAULTS: dict[str, Callable[[redis.Redis], object]] = {
    "NATIVE-1": lambda client: client.zadd(q.waiting, {"ghost": 1}),
    "NATIVE-2": lambda client: client.hset(q.job("orphan"), mapping={"payload": "x"}),
    "NATIVE-3": lambda client: client.zadd(q.dead, {client.zrange(q.waiting, 0, 0)[0]: 1}),  # type: ignore[index]
    "NATIVE-4": lambda client: client.delete(q.consumers),
    "NATIVE-5": lambda client: client.hset(q.job("p-8"), "message", b"{\n"),
    "NATIVE-6": lambda client: client.zadd(q.waiting, {"p-0": 0.5}),
    "NATIVE-7": lambda client: client.hset(q.job("p-8"), "score", "soon"),
    "NATIVE-8": lambda client: client.sadd(q.blocked, "p-0"),
    "NATIVE-9": lambda client: client.zadd(q.scheduled, {"p-8": NOW - 10**6}),
    "NATIVE-10": lambda client: client.zadd(q.consumers, {"ann": NOW - 10**6}),
    "NATIVE-11": lambda client: client.hset(q.job("p-8"), "job", '{"fields":{"id":"x"},"extra":{},"at":[],"native":true}'),
    "NATIVE-12": lambda client: client.hset(q.meta, "schema", "2"),
    "NATIVE-13": lambda client: client.delete(q.meta),
    "NATIVE-14": lambda client: client.delete(q.wake),
    "NATIVE-15": lambda client: client.hset(q.meta, "sequence", "3"),
    "NATIVE-16": lambda client: client.set("ferryman:{q}:odd", "x"),
    "NATIVE-17": lambda client: client.pexpire(q.job("p-8"), 10**6),
    "NATIVE-18": lambda client: client.delete(keys.queues(PREFIX)),
    "NATIVE-19": lambda client: client.zadd(q.outbox, {client.zrange(q.dead, 0, 0)[0]: (NOW - 10**6) * 100}),  # type: ignore[index]
    "NATIVE-20": lambda client: client.zadd(q.outbox, {"p-8": NOW * 100}),
    "NATIVE-21": lambda client: client.set(q.unique("k"), "p-8"),
    "NATIVE-22": lambda client: client.hset(q.meta, "dead_letter_exchange", '"graves"'),
    "NATIVE-23": lambda client: client.hset(q.job("p-8"), "deliveries", "many"),
    "NATIVE-25": lambda client: client.hset(q.job("p-8"), "published_at", "soon"),
    "NATIVE-24": lambda client: client.zadd(q.scheduled, {client.zrange(q.scheduled, 0, 0)[0]: "inf"}),  # type: ignore[index]
}


@pytest.mark.parametrize("rule", FAULTS)
def test_damage_is_named_by_its_rule(busy: redis.Redis, rule: str) -> None:
    FAULTS[rule](busy)
    found, findings = read_all(busy)
    assert rule in rules(findings)
    assert all(finding.queue in ("q", None) for finding in findings)
    assert found


@pytest.mark.parametrize(("score", "rule"), [("inf", "NATIVE-4"), ("-inf", "NATIVE-10")])
def test_an_infinite_lease_is_reported(busy: redis.Redis, score: str, rule: str) -> None:
    busy.zadd(q.consumers, {"ann": score})
    _, findings = read_all(busy)
    assert rules(findings) == {rule}


def test_every_rule_has_its_fault() -> None:
    assert {rule.id for rule in FAMILY.rules} == set(FAULTS)


@pytest.mark.parametrize("role", ["meta", "waiting", "scheduled", "consumers", "dead", "done", "wake", "blocked", "outbox"])
def test_a_key_of_a_wrong_type_is_odd(client: redis.Redis, role: str) -> None:
    client.set(getattr(q, role), "x")
    assert "NATIVE-16" in rules(read_all(client)[1])


# Hostile content

raw = st.binary(max_size=12)
scores = st.floats(allow_nan=False)
hostile_names = (
    raw
    | st.sampled_from(
        [
            key.removeprefix(b"ferryman:")
            for key in (*q.plain, q.job("j"), q.held("c"), q.needs("j"), q.unique("u"), q.times, q.history, q.slots(10))
        ]
    )
    | st.sampled_from([b"queues", b"exchange:", b"exchange:e", b"fanout:{f}", b"fanout:{f}:cursors", b"{%}:meta", b"{%7b}:meta"])
)
known_fields = st.sampled_from(
    b"message payload name score deliveries consumer job reason schema sequence priority_order".split(),
)
packed = st.sampled_from(
    [b'{"fields":{"payload":{"b64":"!"}}}', b'{"fields":{"tags":[1]},"extra":{},"at":[],"native":false}', b"[" * 5_000],
)
hostile_values = {
    "string": raw,
    "list": st.lists(raw, max_size=3),
    "set": st.lists(raw, max_size=3),
    "zset": st.lists(st.tuples(raw, scores), max_size=3),
    "hash": st.dictionaries(raw | known_fields, raw | packed | st.just(b"9" * 400), max_size=4),
    "stream": st.none(),
}
hostile_entries = st.sampled_from(sorted(hostile_values)).flatmap(
    lambda kind: st.builds(
        Entry, hostile_names.map(b"ferryman:".__add__), st.just(kind), hostile_values[kind], st.none() | st.integers(0, 9)
    )
)


@given(st.lists(hostile_entries, max_size=8))
def test_any_content_gives_jobs_and_findings_and_never_an_error(found: list[Entry]) -> None:
    totals = Totals()
    grouped: defaultdict[tuple[str, str], list[Fact]] = defaultdict(list)
    for entry in found:
        for fact in FAMILY.facts(entry, PREFIX):
            FAMILY.tally(fact, totals)
            if fact.job_id is not None:
                grouped[fact.scope, fact.job_id].append(fact)
    keyspace = Keyspace(FAMILY, PREFIX, NOW, Totals.from_json(totals.to_json()))
    list(FAMILY.keyspace_findings(keyspace))
    for facts in grouped.values():
        subject = join(facts)
        list(FAMILY.findings(subject, keyspace))
        job = FAMILY.read(subject, keyspace)
        if job is not None and job.state is not State.UNKNOWN:
            assert isinstance(stored_with_overflow(job, Passthrough.of(job)).fields, dict)


# What can't be written


@pytest.mark.parametrize(
    ("rule", "job"),
    [
        ("NATIVE-W1", Job("", "q", "n", State.WAITING)),
        ("NATIVE-W2", Job("j", "", "n", State.WAITING)),
        ("NATIVE-W3", Job("j", "q", "n", State.UNKNOWN)),
        ("NATIVE-W4", Job("j", "q", "n", State.ACTIVE)),
        ("NATIVE-W5", Job("j", "q", "n", State.BLOCKED)),
        ("NATIVE-W6", Job("j", "q", "n", State.WAITING, extra={"ferryman": {"head": "text"}})),
    ],
)
def test_what_has_no_place_in_a_queue_is_an_obstacle(rule: str, job: Job) -> None:
    assert [finding.rule for finding in FAMILY.incompatibilities(job)] == [rule]


def test_the_family_is_installed() -> None:
    assert get_family("ferryman") is FAMILY
