"""No job of our own queues is accepted in which a rule finds something; nearly all others are."""

from __future__ import annotations

import math
from collections import Counter

from ferryman.compat.kombu.generate import generate as kombu_jobs
from ferryman.compat.kue.generate import generate as kue_jobs
from ferryman.schema.fact import Entry, Subject, join
from ferryman.schema.family import Target
from ferryman.schema.job import Job, State
from ferryman.schema.native import FAMILY
from ferryman.schema.prefilter import ANYWHERE, IndexKey, Member
from ferryman.schema.totals import Totals
from ferryman.testing.keyspaces import read_keyspace
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from ...support.effort import examples
from ...support.prefiltering import accept
from .strategies import fields, texts

NOW = 1_800_000_000_000
PREFIX = "ferryman"
TARGET = Target(PREFIX, NOW, fresh=True)
UNHELD = {State.WAITING, State.SCHEDULED, State.COMPLETED, State.FAILED}

PUBLISHED = list(FAMILY.generate(300, 3, NOW))
MIGRATED = [job for job in kue_jobs(300, 3, NOW) if not list(FAMILY.incompatibilities(job))]
MESSAGES = [job for job in kombu_jobs(100, 3, NOW) if not list(FAMILY.incompatibilities(job))]
"""From kombu, which does not say when they were published."""
JOBS = [*PUBLISHED, *MIGRATED, *MESSAGES]
PLAIN = [job for job in JOBS if job.state in UNHELD and not (job.unique_key or job.tags)]

scores = st.one_of(st.sampled_from([0.5, math.inf, 2.0**60, NOW - 60_001.0, NOW - 59_999.0, -3.0]), st.floats(allow_nan=False))


def _raw(word: bytes | str | int | float) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


def stored(job: Job) -> tuple[Entry, list[Entry]]:
    """The record of a job, and its entries in zsets and sets."""
    entries = []
    for name, key, *words in FAMILY.write(job, TARGET):
        raw = list(map(_raw, words))
        match name:
            case "HSET":
                record = Entry(_raw(key), "hash", dict(zip(raw[::2], raw[1::2], strict=True)))
            case "ZADD":
                entries.append(Entry(_raw(key), "zset", [(raw[-1], float(raw[-2]))]))
            case "SADD":
                entries.append(Entry(_raw(key), "set", raw))
            case _:
                entries.append(Entry(_raw(key), "string", raw[0]))
    return record, entries


def subject_of(record: Entry, zset: Entry) -> Subject:
    """What the prefilter makes of a job's keys."""
    flat = tuple(text for pair in record.value.items() for text in pair)
    ((member, score),) = zset.value
    return FAMILY.prefilter(PREFIX, NOW).subject(record.key, flat, [Member(zset.key, member, score, zset.offset)], [])


@settings(max_examples=examples(500))
@given(st.sampled_from(PLAIN), st.dictionaries(fields, texts, max_size=2), st.sets(fields, max_size=2), st.none() | scores)
def test_no_rule_finds_anything_in_a_job_that_is_accepted(job, changes, missing, score) -> None:
    record, (zset,) = stored(job)
    value = {name: text for name, text in {**record.value, **changes}.items() if name not in missing}
    assume(value)
    record = Entry(record.key, "hash", value)
    if score is not None:
        zset = Entry(zset.key, "zset", [(zset.value[0][0], score)])
    prefilter = FAMILY.prefilter(PREFIX, NOW)
    taken, index_members = accept(prefilter, value), prefilter.index_members(zset)
    accepted = taken is not None and index_members.numbers == [prefilter.record(record.key)]
    event(f"accepted: {accepted}, changed: {bool(changes or missing or score)}")
    if not accepted:
        return
    seen = read_keyspace(FAMILY, [record, zset], PREFIX, NOW)
    assert [finding for finding in seen.findings() if finding.job_id is not None] == []
    (read,) = seen.jobs()
    assert (read.queue, read.state, read.created_at) == (index_members.group.queue, index_members.group.state, taken.created_at)
    stated = join([fact for entry in (record, zset) for fact in FAMILY.facts(entry, PREFIX)])
    made = subject_of(record, zset)
    assert (made.job_id, made.scope, set(made.facts)) == (stated.job_id, stated.scope, set(stated.facts))


@given(st.sampled_from(PLAIN), scores)
def test_no_rule_that_refuses_finds_anything_in_a_job_that_is_accepted_for_a_transfer(job, score) -> None:
    record, (zset,) = stored(job)
    zset = Entry(zset.key, "zset", [(zset.value[0][0], score)])
    prefilter = FAMILY.prefilter(PREFIX, NOW, for_transfer=True)
    if accept(prefilter, record.value) is None or prefilter.index_members(zset).numbers == [None]:
        return
    seen = read_keyspace(FAMILY, [record, zset], PREFIX, NOW)
    event(f"found: {sorted({finding.rule for finding in seen.findings() if finding.job_id})}")
    assert not any(FAMILY.refusals(subject, seen.keyspace) for subject in seen.subjects.values())


def test_jobs_that_are_late_are_accepted_for_a_transfer() -> None:
    late = Entry(b"ferryman:{mail}:scheduled", "zset", [(b"1", NOW - 60_001.0)])
    assert FAMILY.prefilter(PREFIX, NOW).index_members(late).numbers == [None]
    assert FAMILY.prefilter(PREFIX, NOW, for_transfer=True).index_members(late).numbers != [None]


def test_nearly_all_jobs_are_accepted() -> None:
    prefilter = FAMILY.prefilter(PREFIX, NOW)
    counts = Counter((job.state in UNHELD, accept(prefilter, stored(job)[0].value) is not None) for job in JOBS)
    assert counts[True, False] == 0 < counts[True, True]


def test_only_places_where_nobody_holds_a_job_are_accepted() -> None:
    prefilter = FAMILY.prefilter(PREFIX, NOW)
    entries = [entry for job in JOBS for entry in stored(job)[1]]
    by_role = {entry.key.rpartition(b"}:")[2].split(b":")[0]: prefilter.index_members(entry) for entry in entries}
    assert {role for role, members in by_role.items() if members is not None} == {
        b"waiting",
        b"scheduled",
        b"dead",
        b"done",
    }
    assert {b"held", b"consumers"} <= by_role.keys()


@given(st.sampled_from(PLAIN))
def test_what_is_counted_is_what_the_facts_of_all_jobs_count(job) -> None:
    record, (zset,) = stored(job)
    prefilter, expected, counted = FAMILY.prefilter(PREFIX, NOW), Totals(), Totals()
    for entry in (record, zset):
        for fact in FAMILY.facts(entry, PREFIX):
            FAMILY.tally(fact, expected)
    prefilter.tally_accepted({}, [record.key], counted)
    prefilter.tally_index(zset, [score for _, score in zset.value], counted)
    assert counted == expected


def test_different_jobs_have_different_numbers() -> None:
    prefilter = FAMILY.prefilter(PREFIX, NOW)
    names = [("a", "b"), ("ab", ""), ("", "ab"), ("a", "b:"), ("a:", "b"), ("1:a", "b")]
    assert len({prefilter.number(job_id, scope) for scope, job_id in names}) == len(names)
    for key in (
        b"ferryman:{mail}:job:7",
        b"ferryman:{a%7Bb}:job:x:y",
        "ferryman:{ü}:job:\udc80".encode("utf-8", "surrogateescape"),
    ):
        (fact,) = FAMILY.facts(Entry(key, "hash", {b"name": b"x"}), PREFIX)
        assert prefilter.record(key) == prefilter.number(fact.job_id, fact.scope)
    for key in (
        b"ferryman:{mail}:meta",
        b"ferryman:{a{b}:job:7",
        b"ferryman:{%}:job:7",
        b"ferryman:{}:job:7",
        b"other:{q}:job:7",
    ):
        assert prefilter.record(key) is None


@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=2, unique=True), st.binary(min_size=1))
def test_placement_hashes_tell_scores_and_keys_apart(two, key) -> None:
    index_key = IndexKey(key)
    assert (index_key.placement_hash(two[0]) == index_key.placement_hash(two[1])) == (two[0] == two[1])
    assert ANYWHERE.placement_hash(two[0]) == ANYWHERE.placement_hash(two[1]) != 0


def test_two_wrong_scores_never_make_up_for_each_other() -> None:
    """Small whole numbers differ in few bits: hashes must differ in all of them to be added up."""
    index_keys = [IndexKey(b"q:jobs:%d" % number) for number in range(300)]
    steps = {(index_key.placement_hash(1.0) - index_key.placement_hash(0.0)) % 2**64 for index_key in index_keys}
    steps |= {(index_key.placement_hash(0.0) - index_key.placement_hash(1.0)) % 2**64 for index_key in index_keys}
    assert len(steps) == 2 * len(index_keys)
