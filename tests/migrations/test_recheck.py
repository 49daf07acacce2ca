"""Audits of live keyspaces tell what is damaged, and not what was only seen because jobs moved while they were read.

First that all that speaks of a job is found again by asking for it. Then that audits, while workers move jobs as fast as they
can, tell exactly the damage that was done on purpose, where without a second look they tell of damage that there is not.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from attrs import evolve
from ferryman.compat.kue.keys import padded
from ferryman.migrations.atomic_read import AtomicReader, open_reader
from ferryman.migrations.engine import audit
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.recheck import LOOKS, Recheck, open_recheck
from ferryman.migrations.subjects import SubjectBuilder
from ferryman.migrations.throttle import POLITE_BATCH, UNTHROTTLED, Throttle
from ferryman.schema.connection import pipeline
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.connect import open_client
from ferryman.schema.connection.pipeline import PipelineConnection, open_pipeline
from ferryman.schema.fact import Entry, FactKind, Subject
from ferryman.schema.family import Command, Keyspace, get_family
from ferryman.schema.key_refs import KeyRef
from ferryman.schema.rule import Finding, Severity
from ferryman.testing.keyspaces import dump, read_keyspace

from ..conftest import SERVERS
from ..support.captures import Capture, captures, load
from ..support.moved import FAULTS, PACE, Moved
from ..support.movers import moving
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

SYSTEMS = ("bee", "kickq", "kombu", "kue", "pjq", "qless")
MOST_AUDITS = 40
"""Audits until one saw a job that was moving: mostly the first does."""


# What speaks of a job


@pytest.mark.parametrize("system", SYSTEMS)
def test_all_that_speaks_of_a_job_is_found_again(server: Server, system: str) -> None:
    family = get_family(system)
    for capture in captures(system):
        client = server.client()
        client.flushdb()
        load(capture, client)
        reading_of = read_keyspace(family, dump(client).values(), capture.prefix, capture.captured_at_ms)
        refs_by_subject = {
            name: refs for name, subject in reading_of.subjects.items() if (refs := _refs(subject, reading_of.keyspace))
        }
        assert len(refs_by_subject) >= len(reading_of.jobs())
        with open_reader(_address(server, capture)) as reader:
            entries_by_job = reader.read(list(refs_by_subject.values()))
        for name, entries in zip(refs_by_subject, entries_by_job, strict=True):
            assert entries is not None
            builder = SubjectBuilder(family)
            for fact in dict.fromkeys(fact for entry in entries for fact in family.facts(entry, capture.prefix)):
                builder.add(fact)
            again = next((each for each in builder.subjects() if (each.scope, each.job_id) == name), None)
            assert again is not None, f"{capture}: {name}"
            assert _stated(again) == _stated(reading_of.subjects[name]), f"{capture}: {name}"


def _refs(subject: Subject, keyspace: Keyspace) -> list[Any]:
    """Nothing for a message that stands in lists alone, under the names of several queues: it is asked for under each."""
    if all(fact.role == "copy" for fact in subject.facts):
        return []
    return list(dict.fromkeys(keyspace.family.related_keys(subject, keyspace)))


def _stated(subject: Subject) -> set[Any]:
    """What the facts say. Sets have no order, and of ranks in sorted sets no rule speaks: an index counts in lists alone."""
    return {
        (fact.role, fact.key, fact.member, fact.score, fact.label, fact.values, fact.redis_type == "list" and fact.index)
        for fact in subject.facts
    }


def _address(server: Server, capture: Capture) -> Address:
    return Address.parse(server.url(0, family=capture.system))


# Audits while jobs move


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Of one kind: what differs between servers is seen by the tests above."""
    with SERVERS[0].start(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(params=FAULTS)
def moved(one_server: Server, request: pytest.FixtureRequest) -> Moved:
    one_server.client().flushall()
    return Moved(one_server, get_family(request.param))


def test_an_audit_while_jobs_move_tells_the_damage_and_nothing_else(moved: Moved, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = LocalEngine(PACE)
    at_rest, census = moved.errors(engine)
    assert at_rest == moved.injected
    assert not census.passing
    with moving(moved.server, moved.steps) as taken:
        with monkeypatch.context() as patch:
            patch.setattr(audit, "open_recheck", NothingRechecked)
            false_ones = next((found for found in _audits(moved, engine) if found != moved.injected), None)
        assert false_ones is not None, "jobs did not move fast enough for this test to mean anything"
        assert false_ones > moved.injected
        steps = taken()
        moved.assert_only_injected(engine, MOST_AUDITS)
        assert taken() > steps


def _audits(moved: Moved, engine: LocalEngine) -> Iterator[set[tuple[str, str | None]]]:
    return (moved.errors(engine)[0] for _ in range(MOST_AUDITS))


class NothingRechecked:
    """In the place of ``open_recheck``: tells everything as it was first seen."""

    def __init__(self, _address: Address, keyspace: Keyspace, *_others: object) -> None:
        self._recheck = Recheck(keyspace, None)

    def __enter__(self) -> Recheck:
        return self._recheck

    def __exit__(self, *_: object) -> None:
        pass


def test_a_job_that_never_stands_still_keeps_the_findings_that_every_look_shows(server: Server) -> None:
    keyspace = _keyspace_of_capture(server)
    family, client = keyspace.family, server.client()
    # A job that is missing in one index all the time, and is touched between any two looks.
    client.zrem("q:jobs", "01|1")
    subject = _subject(server, keyspace, "1")
    first = list(family.findings(subject, keyspace))
    assert [finding.rule for finding in first] == ["KUE-4"]
    looks = itertools.count()

    class Touching(AtomicReader):
        def read(self, groups: Any) -> Any:
            client.hset("q:job:1", "updated_at", 2_000_000_000_000 + next(looks))
            return super().read(groups)

    with open_client(Address.parse(server.url())) as opened, open_pipeline(opened) as pipe:
        reader = Touching(lambda _slot: nullcontext(pipe), UNTHROTTLED.pace())
        assert [finding.rule for finding in Recheck(keyspace, reader).still_holding([(subject, first)])] == ["KUE-4"]
    assert next(looks) == LOOKS


@pytest.mark.parametrize("system", SYSTEMS)
def test_rules_of_the_record_look_at_nothing_else(system: str) -> None:
    family = get_family(system)
    for capture in captures(system):
        reading_of = read_keyspace(family, capture.entries(), capture.prefix, capture.captured_at_ms)
        for subject in reading_of.subjects.values():
            alone = evolve(subject, facts=tuple(subject.of_kind(FactKind.RECORD)))
            found = [
                [each for each in family.findings(seen, reading_of.keyspace) if each.rule in family.record_only_rules]
                for seen in (subject, alone)
                if seen.facts
            ]
            assert all(each == (found[0] if alone.facts else []) for each in found)


@pytest.mark.parametrize(
    ("change", "rules", "full_looks"),
    [
        pytest.param(None, {"KUE-15"}, 0, id="nothing"),
        pytest.param(("ZREM", "q:jobs", "{padded}"), {"KUE-15"}, 0, id="an index"),
        pytest.param(("HSET", "q:job:{id}", "progress", "7"), {"KUE-15"}, 2, id="the record"),
        pytest.param(("HSET", "q:job:{id}", "ttl", "700"), set(), 1, id="what the rule asks for"),
        pytest.param(("DEL", "q:job:{id}"), {"KUE-1"}, 2, id="the record is gone"),
    ],
)
def test_where_no_other_rule_is_broken_the_record_is_looked_at(
    server: Server, change: tuple[str, ...] | None, rules: set[str], full_looks: int
) -> None:
    keyspace = _keyspace_of_capture(server)
    client, entries = server.client(), dump(server.client()).values()
    reading_of = read_keyspace(keyspace.family, entries, keyspace.prefix, keyspace.now_ms)
    found = ((subject, keyspace.family.findings(subject, keyspace)) for subject in reading_of.subjects.values())
    subject, first = next((subject, said) for subject, said in found if [each.rule for each in said] == ["KUE-15"])
    if change:
        client.execute_command(*(word.format(id=subject.job_id, padded=padded(subject.job_id)) for word in change))
    looks: list[list[KeyRef]] = []

    class Counting(AtomicReader):
        def read(self, groups: Any) -> Any:
            looks.append(list(groups[0]))
            return super().read(groups)

    with open_client(Address.parse(server.url())) as opened, open_pipeline(opened) as pipe:
        reader = Counting(lambda _slot: nullcontext(pipe), UNTHROTTLED.pace())
        reported = {each.rule for each in Recheck(keyspace, reader).still_holding([(subject, first)])}
    assert reported == rules
    assert looks[0] == [KeyRef(f"q:job:{subject.job_id}".encode(), "hash")]
    assert len(looks) == 1 + full_looks
    assert all(len(look) > 10 for look in looks[1:])


def test_more_jobs_than_may_be_looked_at_again_are_told_as_they_were_seen(server: Server) -> None:
    keyspace = _keyspace_of_capture(server)
    subjects = [_subject(server, keyspace, str(number)) for number in range(1, 6)]
    for number in range(1, 6):
        server.client().hset(f"q:job:{number}", "workerId", "another")
    once = Finding("KUE-4", Severity.ERROR, None, "q:jobs", None, "once upon a time")
    found = [(subject, [once]) for subject in subjects]
    with open_recheck(Address.parse(server.url(0, family="kue")), keyspace, most=2) as recheck:
        reported = list(recheck.still_holding(iter(found)))
    assert reported == [once] * 3
    assert (recheck.passing, recheck.unconfirmed) == (2, 3)


def test_keys_that_would_hold_the_server_for_long_are_not_read_again(server: Server) -> None:
    client = server.client()
    client.sadd("large", *range(10_001))
    client.rpush("long", *["x"] * 100_001)
    client.rpush("short", *"abcabc")
    client.set("text", "of another type")
    groups = [
        [KeyRef(b"large", "set")],
        [KeyRef(b"long", "list", (b"x",))],
        [
            KeyRef(b"short", "list", (b"b", b"c")),
            KeyRef(b"text", "zset", (b"b",)),
            KeyRef(b"none", "hash"),
            KeyRef(b"large", "set", (b"7", b"x")),
        ],
    ]
    with open_reader(Address.parse(server.url())) as reader:
        first, second, third = reader.read(groups)
    assert first is None
    assert second is None
    assert third is not None
    assert [(entry.key, entry.value, entry.offset) for entry in third] == [
        (b"short", [b"b"], 1),
        (b"short", [b"b"], 4),
        (b"short", [b"c"], 2),
        (b"short", [b"c"], 5),
        (b"large", [b"7"], 0),
    ]


def test_a_polite_look_asks_about_a_few_jobs_at_once(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.client().hset("record", "state", "inactive")
    transactions: list[int] = []

    class Counting(PipelineConnection):
        def call(self, commands: Iterable[Command]) -> list[Any]:
            those = list(commands)
            transactions.append(those.count(("MULTI",)))
            return super().call(those)

    monkeypatch.setattr(pipeline, "PipelineConnection", Counting)
    groups = [[KeyRef(b"record", "hash")]] * (2 * POLITE_BATCH + 1)
    with open_reader(Address.parse(server.url()), Throttle.parse("polite")) as reader:
        entries_by_group = reader.read(groups)
    assert entries_by_group == [[Entry(b"record", "hash", {b"state": b"inactive"})]] * len(groups)
    assert [number for number in transactions if number] == [POLITE_BATCH, POLITE_BATCH, 1]


def test_a_server_may_close_the_connection_between_two_looks(server: Server) -> None:
    refs = [[KeyRef(b"text", "string")]]
    client = server.client()
    client.set("text", "here")
    with open_reader(Address.parse(server.url(0, client_name="looking"))) as reader:
        first = reader.read(refs)
        for other in client.client_list():
            if other["name"] == "looking":
                client.client_kill_filter(_id=other["id"])
        assert reader.read(refs) == first == [[Entry(b"text", "string", b"here")]]


def test_without_the_right_to_transactions_findings_are_told_as_they_were_seen(server: Server) -> None:
    capture = next(each for each in captures("kue") if each.name == "crashed")
    client = server.client()
    load(capture, client)
    client.acl_setuser("reader", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-multi"])
    address = Address.parse(server.url(0, family="kue"))
    reported: list[list[Finding]] = [[], []]
    counted = [
        LocalEngine().audit(each, capture.captured_at_ms, found.append)
        for each, found in zip((address, evolve(address, username="reader", password="secret")), reported, strict=True)
    ]
    client.acl_deluser("reader")
    assert reported[0] == reported[1]
    assert counted[0].unconfirmed == 0
    assert counted[1].unconfirmed == sum(finding.job_id is not None for finding in reported[1])


def _keyspace_of_capture(server: Server) -> Keyspace:
    capture = next(each for each in captures("kue") if each.name == "healthy")
    load(capture, server.client())
    return read_keyspace(get_family("kue"), dump(server.client()).values(), "q", capture.captured_at_ms).keyspace


def _subject(server: Server, keyspace: Keyspace, job_id: str) -> Subject:
    entries = dump(server.client()).values()
    return read_keyspace(keyspace.family, entries, keyspace.prefix, keyspace.now_ms).subjects["", job_id]
