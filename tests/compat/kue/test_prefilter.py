"""No kue job is accepted in which a rule finds something, whatever its hash holds; nearly all others are."""

from __future__ import annotations

from ferryman.compat.kue import FAMILY
from ferryman.compat.kue.generate import generate
from ferryman.compat.kue.keys import padded
from ferryman.schema.fact import Entry, join
from ferryman.schema.family import Target
from ferryman.schema.job import Job, State
from ferryman.schema.prefilter import Member
from ferryman.schema.text import to_bytes
from ferryman.testing.keyspaces import read_keyspace
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ...support.effort import examples
from ...support.prefiltering import accept
from .strategies import fields, texts

NOW = 1_800_000_000_000
ALL_JOBS = list(generate(400, 3, NOW))
JOBS = [job for job in ALL_JOBS if job.state is not State.ACTIVE or job.ttl]
PREFIX = "q"
TARGET = Target(PREFIX, NOW)

edges = st.one_of(texts, st.sampled_from([b"%d" % (NOW + shift) for shift in (-(10**12), -3001, -3000, 0, 10**9)]))

leases = st.sampled_from([-10.0, 0.0, 99_999.0, 100_000.0, NOW - 3001.0, NOW - 3000.0, NOW + 1e6, float("inf")])


def stored_as(job: Job) -> dict[bytes, bytes]:
    """The hash of a job, as its writer writes it."""
    (words,) = (command[2:] for command in FAMILY.write(job, TARGET) if command[0] == "HSET")
    return dict(zip(map(_raw, words[::2]), map(_raw, words[1::2]), strict=True))


def _raw(word: bytes | str | int | float) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode()


def as_is(record: dict[bytes, bytes], lease: float, *, for_transfer: bool = False) -> tuple[list[Entry], object]:
    """The keyspace in which a job stands just where the prefilter says, and what it says; nothing where it does not accept it.

    ``lease``: its score where the prefilter does not say one.
    """
    prefilter, job_id = FAMILY.prefilter(PREFIX, NOW, for_transfer=for_transfer), "7"
    accepted = accept(prefilter, record)
    if accepted is None:
        return [], None
    member = padded(job_id).encode()
    entries = [
        Entry(f"{PREFIX}:job:{job_id}".encode(), "hash", record),
        Entry(f"{PREFIX}:job:types".encode(), "set", [to_bytes(accepted.group.queue)]),
        Entry(f"{PREFIX}:ids".encode(), "string", job_id.encode()),
    ]
    for index_key, score in zip(accepted.group.index_keys, accepted.scores, strict=True):
        entries.append(Entry(index_key.key, "zset", [(member, score if index_key.is_scored else lease)]))
        index_members = prefilter.index_members(entries[-1])
        if index_members.numbers == [None]:
            return [], None
        assert index_members.key == index_key
    if accepted.group.state is State.WAITING:
        entries.append(Entry(f"{PREFIX}:".encode() + to_bytes(accepted.group.queue) + b":jobs", "list", [b"1"]))
    return entries, accepted


@settings(max_examples=examples(400))
@given(st.sampled_from(JOBS), st.dictionaries(fields, edges, max_size=2), st.sets(fields, max_size=2), leases)
def test_no_rule_finds_anything_in_a_job_that_is_accepted(job, changes, missing, lease) -> None:
    stored = stored_as(job)
    record = {name: value for name, value in {**stored, **changes}.items() if name not in missing}
    entries, accepted = as_is(record, lease)
    event(f"accepted: {accepted is not None}, active: {job.state is State.ACTIVE}, changed: {record != stored}")
    if accepted is None:
        return
    seen = read_keyspace(FAMILY, entries, PREFIX, NOW)
    assert seen.findings() == []
    (read,) = seen.jobs()
    assert (read.queue, read.state, read.created_at) == (accepted.group.queue, accepted.group.state, accepted.created_at)
    assert FAMILY.prefilter(PREFIX, NOW).is_settled(read.queue, seen.keyspace.totals)


@settings(max_examples=examples(400))
@given(st.sampled_from(ALL_JOBS), st.dictionaries(fields, edges, max_size=2), st.sets(fields, max_size=2), leases)
def test_no_rule_that_refuses_finds_anything_in_a_job_that_is_accepted_for_a_transfer(job, changes, missing, lease) -> None:
    record = {name: value for name, value in {**stored_as(job), **changes}.items() if name not in missing}
    entries, accepted = as_is(record, lease, for_transfer=True)
    if accepted is None:
        assert as_is(record, lease) == ([], None)
        return
    seen = read_keyspace(FAMILY, entries, PREFIX, NOW)
    found = {finding.rule for finding in seen.findings()}
    event(f"{job.state}, found: {found}")
    assert found <= {"KUE-14", "KUE-15", "KUE-16"}
    assert not any(FAMILY.refusals(subject, seen.keyspace) for subject in seen.subjects.values())
    (read,) = seen.jobs()
    assert (read.queue, read.state, read.created_at) == (accepted.group.queue, accepted.group.state, accepted.created_at)


@given(st.sampled_from(JOBS), st.lists(st.binary(max_size=9), max_size=3), st.integers(0, 99))
def test_the_subject_of_a_job_is_what_its_keys_state(job, lines, rank) -> None:
    record = stored_as(job)
    accepted = accept(FAMILY.prefilter(PREFIX, NOW), record)
    member = padded("7").encode()
    members = [
        Member(index_key.key, member, score, rank)
        for index_key, score in zip(accepted.group.index_keys, accepted.scores, strict=True)
    ]
    logs = [Entry(f"{PREFIX}:job:7:log".encode(), "list", lines)] if lines else []
    keys = [Entry(f"{PREFIX}:job:7".encode(), "hash", record), *logs]
    keys += [Entry(each.key, "zset", [(each.member, each.score)], None, each.rank) for each in members]
    stated = join([fact for key in keys for fact in FAMILY.facts(key, PREFIX)])
    flat = tuple(text for pair in record.items() for text in pair)
    made = FAMILY.prefilter(PREFIX, NOW).subject(keys[0].key, flat, members, logs)
    assert (made.job_id, made.scope, set(made.facts)) == (stated.job_id, stated.scope, set(stated.facts))


@given(st.lists(st.tuples(st.sampled_from(JOBS), st.none() | st.tuples(fields, edges)), min_size=1))
def test_records_are_accepted_together_as_one_by_one(those) -> None:
    prefilter = FAMILY.prefilter(PREFIX, NOW)
    records = [{**stored_as(job), **dict([change] if change else [])} for job, change in those]
    names = set.intersection(*map(set, records))
    records = [{name: record[name] for name in names} for record in records]
    columns = {name: [record[name] for record in records] for name in names}
    groups, scores, created_at, _ = prefilter.accept(columns, [b""] * len(records))
    for row, record in enumerate(records):
        accepted = accept(prefilter, record)
        assert groups[row] == (accepted and accepted.group)
        if accepted:
            assert (tuple(column[row] for column in scores), created_at[row]) == (accepted.scores, accepted.created_at)


def test_generated_jobs_are_accepted_unless_nobody_knows_how_long_they_may_run() -> None:
    prefilter = FAMILY.prefilter(PREFIX, NOW)
    jobs = list(generate(2000, 5, NOW))
    accepted = [job for job in jobs if accept(prefilter, stored_as(job)) is not None]
    assert accepted == [job for job in jobs if job.state is not State.ACTIVE or job.ttl]
    for_transfer = FAMILY.prefilter(PREFIX, NOW, for_transfer=True)
    assert all(accept(for_transfer, stored_as(job)) is not None for job in jobs)


def test_a_job_stands_where_the_prefilter_says() -> None:
    """Against the writer: the placement hashes of all indexes and scores that a sound job has."""
    prefilter = FAMILY.prefilter(PREFIX, NOW)
    for job in JOBS:
        group, scores, _ = accept(prefilter, stored_as(job))
        claimed = {index_key.key: score for index_key, score in zip(group.index_keys, scores, strict=True) if index_key.is_scored}
        written = {
            command[1]: float(command[2])
            for command in FAMILY.write(job, TARGET)
            if command[0] == "ZADD" and b":search:" not in command[1] and command[1] != prefilter.active
        }
        assert claimed == written


def test_members_of_today_s_form_are_known_and_no_others() -> None:
    prefilter = FAMILY.prefilter(PREFIX, NOW)
    expected = {b"01|7": 7, b"16|1234567890123456": 1234567890123456, b"01|0": 0}
    expected |= dict.fromkeys((b"7", b"02|7", b"02|07", b"01|x", b"", b"01|\xd9\xa3", b"17|12345678901234567", b"00|"))
    for members in (list(expected), [b"01|7", b"02|70"], *([b"01|7", member] for member in expected)):
        index_members = prefilter.index_members(Entry(b"q:jobs", "zset", [(member, 0.0) for member in members]))
        assert index_members.numbers == [{**expected, b"02|70": 70}[member] for member in members]


def test_keys_that_expire_or_are_no_index_are_left_to_the_rules() -> None:
    prefilter = FAMILY.prefilter(PREFIX, NOW)
    items = [(b"01|7", 0.0)]
    assert prefilter.index_members(Entry(b"q:jobs:email:inactive", "zset", items)) is not None
    assert prefilter.index_members(Entry(b"q:jobs", "zset", items, 5000)) is None
    assert prefilter.index_members(Entry(b"q:search:word:X", "zset", items)) is None
    assert prefilter.owner(b"q:job:7:log") == 7
    assert [prefilter.owner(key) for key in (b"q:job:7", b"q:job:07:log", b"q:job::log", b"q:email:jobs")] == [None] * 4
    assert prefilter.record(b"q:job:7") == 7
    assert [
        prefilter.record(key) for key in (b"q:job:types", b"q:job:07", b"q:job:7:log", b"r:job:7", b"q:job:" + b"9" * 20)
    ] == [None] * 5
