"""No family makes a value up: where a record has lost one, the job stays behind with a finding, or carries what the keys say.

Each field of each record, each member of a document and each score is taken away, and damaged, one at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any

import pytest
import redis
from attrs import evolve, frozen
from ferryman.schema.fact import Entry, Subject
from ferryman.schema.family import KeyFamily, family_names, get_family
from ferryman.schema.job import Job, State, differences
from ferryman.schema.rule import Violation
from ferryman.schema.text import to_bytes
from ferryman.testing.keyspaces import KeyspaceReading, dump, read_keyspace, store

from ..support.families import GENERATING
from ..support.mending import NOW

pytestmark = pytest.mark.in_turn

TO_RUN = {State.WAITING, State.SCHEDULED, State.BLOCKED, State.ACTIVE}
GARBAGE = b"\x00lost"

DECIDING = {"due_at", "priority", "payload"}
"""What decides how a job that has yet to run goes on at the target: None there would mean something."""

LIMITS = {"attempts", "max_attempts", "ttl"}
"""The same, but that systems take a missing one for none."""

DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "bee": {"attempts": 0, "priority": 0, "tags": (), "history": ()},
    "ferryman": {"name": "", "priority": None},
    "kickq": {"attempts": 0, "max_attempts": 2, "ttl": 10_000, "history": (), "payload": None},
    "kombu": {"name": "", "payload": None, "due_at": None, "priority": None},
    "kue": {"attempts": 0, "max_attempts": 1, "progress": 0.0},
    "pjq": {"attempts": 0, "name": ""},
    "qless": {"tags": ()},
}
"""What the software itself takes for a field that is not there, as docs/families.md tells."""

STAND_ELSEWHERE = {("kombu", "priority"), ("pjq", "created_at")}
"""What becomes None where another key or the payload, which is its producer's own, says it, or the software takes it for none."""

COPIED = {"payload", "result"}
"""Fields that no reader can make up, but in another spelling than that of the document in which they stand."""

FOLLOWING = {"state", "history", "logs", "extra", "attempts", "updated_at", "started_at", "finished_at", "worker", "error"}
"""Fields that several parts of a record tell together: with less of them they say less."""


@frozen
class Change:
    """A keyspace in which one value of one job is another."""

    what: str
    job: Job
    removed: bool
    entries: list[Entry]


@pytest.mark.parametrize("name", GENERATING)
def test_a_lost_value_is_named_or_follows_from_the_keys(client: redis.Redis, name: str) -> None:
    family = get_family(name)
    prefix = family.default_prefix
    store(client, family, prefix, family.generate(40, 5, NOW), NOW)
    keys = dump(client)
    original = read_keyspace(family, keys.values(), prefix, NOW)
    looked = 0
    for change in _changes(original, keys):
        looked += 1
        seen = read_keyspace(family, change.entries, prefix, NOW)
        for subject in seen.subjects.values():
            job = family.read(subject, seen.keyspace)
            if job is not None and (job.id, job.queue) == (change.job.id, change.job.queue):
                _check(family, seen, subject, job, change)
    assert looked > 40


def _check(family: KeyFamily, seen: KeyspaceReading, subject: Subject, job: Job, change: Change) -> None:
    if family.refusals(subject, seen.keyspace) or job.state is State.UNKNOWN:
        return
    named = bool(family.findings(subject, seen.keyspace))
    for name, value in differences(change.job, evolve(job, extra={}, history=change.job.history, logs=change.job.logs)).items():
        now = getattr(job, name)
        if name == "extra" or (change.removed and name in DEFAULTS[family.name] and now == DEFAULTS[family.name][name]):
            continue
        lost = now is None and job.state in TO_RUN and name in (DECIDING if change.removed else DECIDING | LIMITS)
        if (name == "due_at" and job.state is not State.SCHEDULED) or (family.name, name) == ("kombu", "priority"):
            lost = False  # kombu takes a priority that it can't read for none, and the list tells where the message stands
        assert not lost, f"{change.what} of {job.state} job {job.id}: {name} was {value!r}, and nothing says that it is lost"
        # An infinite score in an index is a time that never comes, or came always.
        is_overwritten = not change.removed and not change.what.startswith("score ")
        emptied = is_overwritten and now in (None, ()) and (family.name, name) not in STAND_ELSEWHERE
        assert not emptied, f"{change.what} of {job.state} job {job.id}: {name} was {value!r}, is gone, and the job goes over"
        is_found = now is None or name in FOLLOWING | COPIED or _is_found(now, change.entries)
        assert is_found or named, f"{change.what} of {job.state} job {job.id}: {name} was {value!r}, and is {now!r}"


def _is_found(value: Any, entries: list[Entry]) -> bool:
    """Whether a value is somewhere in the keys."""
    text = to_bytes(value if isinstance(value, str) else str(value))
    return any(text in entry.key or any(text in raw for raw in _texts(entry)) for entry in entries)


def _texts(entry: Entry) -> Iterable[bytes]:
    """All that a key holds."""
    match entry.redis_type:
        case "hash":
            return (*entry.value, *entry.value.values())
        case "zset":
            return (text for member, score in entry.value for text in (member, b"%d" % score if isfinite(score) else b""))
        case "string":
            return (entry.value,)
    return entry.value


def _changes(original: KeyspaceReading, keys: Mapping[bytes, Entry]) -> Iterator[Change]:
    """One change of each kind, at one job of each state."""
    seen: set[State] = set()
    family = original.keyspace.family
    for subject in original.subjects.values():
        job = family.read(subject, original.keyspace)
        if job is None or job.state in seen:
            continue
        seen.add(job.state)
        for key in dict.fromkeys(fact.key for fact in subject.facts if fact.key in keys):
            for what, removed, entry in _damaged_entries(keys[key], subject):
                rest = [other for other in keys.values() if other.key != key]
                yield Change(what, job, removed, rest if entry is None else [*rest, entry])


def _damaged_entries(entry: Entry, subject: Subject) -> Iterator[tuple[str, bool, Entry | None]]:
    """A key with one value less, or with a damaged one: what was done, whether it is gone, and the key."""
    match entry.redis_type:
        case "hash" if not any(fact.key == entry.key and fact.role == "unacked" for fact in subject.facts):
            for name, raw in entry.value.items():
                without = {other: text for other, text in entry.value.items() if other != name}
                yield f"field {name!r}", True, evolve(entry, value=without) if without else None
                yield f"damaged field {name!r}", False, evolve(entry, value={**without, name: GARBAGE})
                for what, removed, text in _documents(raw):
                    yield f"{what} in {name!r}", removed, evolve(entry, value={**without, name: text})
        case "zset":
            own = {fact.member for fact in subject.facts if fact.key == entry.key}
            rest = [(member, score) for member, score in entry.value if member not in own]
            for member, _ in entry.value:
                if member in own:
                    yield f"{entry.key!r}", True, evolve(entry, value=rest) if rest else None
                    for score in (float("inf"), float("-inf")):
                        members = sorted([*rest, (member, score)], key=lambda item: item[1])
                        yield f"score {score} in {entry.key!r}", False, evolve(entry, value=members)
        case "list":
            for index, raw in enumerate(entry.value):
                if any(fact.key == entry.key and fact.index == index and raw in fact.values for fact in subject.facts):
                    for what, removed, text in _documents(raw):
                        items = [*entry.value[:index], text, *entry.value[index + 1 :]]
                        yield f"{what} in {entry.key!r}", removed, evolve(entry, value=items)


def _documents(raw: bytes) -> Iterator[tuple[str, bool, bytes]]:
    """A JSON object with one member less, or with a damaged one, also of the objects in it."""
    try:
        value = json.loads(raw)
    except ValueError:
        return
    for what, removed, changed in _objects(value):
        yield what, removed, json.dumps(changed).encode()


def _objects(value: Any) -> Iterator[tuple[str, bool, Any]]:
    if not isinstance(value, dict):
        return
    for name in value:
        rest = {other: each for other, each in value.items() if other != name}
        yield f"member {name}", True, rest
        yield f"damaged member {name}", False, {**value, name: "lost?"}
        for what, removed, changed in _objects(value[name]):
            yield f"{what} of {name}", removed, {**value, name: changed}


@pytest.mark.parametrize("name", family_names())
def test_each_number_of_a_rule_has_one_title(name: str) -> None:
    """Findings are shown under the title of their rule, whichever of its checks has made them."""
    titles: dict[str, set[str]] = {}
    for rule in get_family(name).rules:
        titles.setdefault(rule.id, set()).add(rule.title)
    assert {rule: texts for rule, texts in titles.items() if len(texts) > 1} == {}


@pytest.mark.parametrize("name", family_names())
def test_a_finding_about_a_lost_value_says_what_the_job_is_carried_with(name: str) -> None:
    for rule in get_family(name).rules:
        if rule.assumes is not None:
            assert rule.refuses
            said = rule.finding(Violation("lost", b"key"), "1").detail
            assert f"--accept {rule.id} carries it {rule.assumes}" in said
