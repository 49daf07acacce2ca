"""Audits of keyspaces by a prefilter, held against the facts of all jobs; and sound keyspaces with something changed in them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote

from attrs import evolve
from ferryman.migrations.engine import Census
from ferryman.migrations.prefiltering_reader import InMemoryPrefilterReader
from ferryman.migrations.subjects import SubjectBuilder
from ferryman.schema.connection.address import Address
from ferryman.schema.fact import Entry
from ferryman.schema.family import Keyspace
from ferryman.schema.rule import Finding
from ferryman.schema.totals import Totals
from ferryman.testing.keyspaces import read_keyspace
from hypothesis import strategies as st

Seen = tuple[list[Finding], Census, Totals]


def address(family: str, prefix: str) -> Address:
    return Address.parse(f"ferryman://localhost/0?family={family}&prefix={quote(prefix)}")


def prefiltered(keyspace: Address, keys: Iterable[Entry], now_ms: int) -> tuple[Seen, int]:
    """What an audit sees of a keyspace, and how many jobs are accepted in it."""
    family = keyspace.key_family
    prefiltering, builder = InMemoryPrefilterReader(keyspace, now_ms), SubjectBuilder(family)
    for fact in [*(fact for entry in keys for fact in prefiltering.facts(entry)), *prefiltering.rest()]:
        builder.add(fact)
    remembered, census = prefiltering.settle()
    accepted = census.jobs
    for fact in remembered:
        builder.add(fact)
    known = Keyspace(family, keyspace.prefix, now_ms, prefiltering.close().totals)
    subjects = list(builder.subjects())
    for job in filter(None, (family.read(subject, known) for subject in subjects)):
        census.count(job, now_ms)
    findings = [finding for subject in subjects for finding in family.findings(subject, known)]
    return (sorted([*findings, *family.keyspace_findings(known)], key=repr), census, known.totals), accepted


def expected(keyspace: Address, keys: Iterable[Entry], now_ms: int) -> Seen:
    """The same, made of the facts of all jobs."""
    seen = read_keyspace(keyspace.key_family, keys, keyspace.prefix, now_ms)
    census = Census()
    for job in seen.jobs():
        census.count(job, now_ms)
    return sorted(seen.findings(), key=repr), census, seen.keyspace.totals


VALUES: Sequence[Any] = (
    *(None, True, False, 0, 1, 2, -1, 1.5, 2**62, 2**70, "", "1", "new", "retry", "fail", "success", [], {}, [None]),
    *([{"count": 1, "state": "fail"}], [{"count": True, "state": "success"}], [{"count": 2, "state": "ghost"}], "\ud800"),
)
TEXTS = (b"", b"{}", b"null", b"new", b"queued", b"fail", b"success", b"processing", b"0", b"17", b"1e3", b"-5", b"soon", b"\xff")


@st.composite
def changed(
    draw: st.DrawFn, keys: Sequence[Entry], document: bytes, fields: Sequence[bytes], members: Sequence[str]
) -> list[Entry]:
    """A sound keyspace in which up to three things are different. ``document``: the field with a JSON object, of ``members``."""
    found = list(keys)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(found) - 1))
        found[at] = _changed_entry(draw, found[at], found, document, fields, members)
    return [entry for entry in found if entry.value]


def _changed_entry(
    draw: st.DrawFn, entry: Entry, keys: Sequence[Entry], document: bytes, fields: Sequence[bytes], members: Sequence[str]
) -> Entry:
    if entry.redis_type == "string" or draw(st.integers(0, 9)) == 0:
        return evolve(entry, ttl_ms=5000)
    if entry.redis_type != "hash":
        return evolve(entry, value=_changed_members(draw, entry, keys))
    others = [other.value for other in keys if other.redis_type == "hash"]
    value = dict(entry.value)
    if document in value and draw(st.booleans()):
        try:
            item = json.loads(value[document])
        except ValueError:
            item = None
        if isinstance(item, dict):
            item[draw(st.sampled_from(members))] = draw(st.sampled_from(VALUES))
            value[document] = json.dumps(item, separators=draw(st.sampled_from([(",", ":"), (", ", ": ")]))).encode()
        return evolve(entry, value=value)
    name, other = draw(st.sampled_from(fields)), draw(st.sampled_from(others))
    text = draw(st.sampled_from([None, *TEXTS, *filter(None, [other.get(name)])]))
    value.pop(name, None)
    return evolve(entry, value=value if text is None else value | {name: text})


def _changed_members(draw: st.DrawFn, entry: Entry, keys: Sequence[Entry]) -> list[Any]:
    """The members of a container without one, or with one of another container, or with another score."""
    value = list(entry.value)
    if value and draw(st.booleans()):
        del value[draw(st.integers(0, len(value) - 1))]
        return value
    others = [member for other in keys if other.redis_type == "set" or other.redis_type == "list" for member in other.value]
    member = draw(st.sampled_from([b"nobody", b"\xff", *others]))
    if entry.redis_type == "zset":
        scores = [score for other in keys if other.redis_type == "zset" for _, score in other.value]
        members = dict(value) | {member: draw(st.sampled_from([0.0, 1.5, float("inf"), -1e18, *scores]))}
        return sorted(members.items(), key=lambda item: (item[1], item[0]))
    if entry.redis_type == "set" and member in value:
        return value
    value.insert(draw(st.integers(0, len(value))), member)
    return value
