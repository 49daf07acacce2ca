"""Jobs of bee that are accepted are left out of audits, and nothing of what rules find or count is missing."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from attrs import evolve
from ferryman.compat.bee import FAMILY
from ferryman.compat.bee.generate import generate_records
from ferryman.compat.bee.keys import OPTIONS, OPTIONS_TTL
from ferryman.compat.bee.prefilter import FIELDS, TIES
from ferryman.compat.bee.record import tag_names
from ferryman.schema.fact import Entry, join
from ferryman.schema.family import Target
from ferryman.schema.prefilter import Member
from ferryman.schema.text import to_bytes
from ferryman.testing.keyspaces import read_keyspace
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ...support.captures import Capture, captures
from ...support.effort import examples
from ...support.prefiltered_audits import address, changed, expected, prefiltered
from ...support.prefiltering import accept
from .strategies import entries, hashes, histories, options

BEE = address("bee", "bee")
NOW = 1_800_000_000_000
RECORD = b"bee:h:jobs:"


def keyspace(jobs: int) -> list[Entry]:
    """Generated jobs in all of their keys, as the writer puts them there."""
    keys: dict[bytes, Entry] = {}
    for made in generate_records(jobs, 5, NOW):
        for name, key, *words in FAMILY.write(made, Target("bee", NOW, generated=True)):
            before: Any = keys[key].value if key in keys else []
            match name:
                case "HSET":
                    keys[key] = Entry(key, "hash", dict(zip(words[::2], words[1::2], strict=True)))
                case "PEXPIRE":
                    keys[key] = evolve(keys[key], ttl_ms=words[0])
                case "ZADD":
                    keys[key] = Entry(key, "zset", sorted([*before, (words[1], words[0])], key=lambda item: (item[1], item[0])))
                case "SADD":
                    keys[key] = Entry(key, "set", [*before, *words])
                case "RPUSH":
                    keys[key] = Entry(key, "list", [*before, *words])
                case "LPUSH":
                    keys[key] = Entry(key, "list", [*words, *before])
                case other:
                    raise AssertionError(f"the writer uses {other}")
    return [*keys.values(), Entry(b"bee:str:hive:options", "string", b'{"log":false}')]


GENERATED = keyspace(40)
MANY = keyspace(150)
RECORDS = [entry for entry in MANY if entry.key.startswith(RECORD)]


def is_untied(record: Entry) -> bool:
    """Whether no other job speaks of the job."""
    return record.value.keys().isdisjoint(TIES) and b"dependancyWaiting" not in record.value[b"history"]


def test_generated_jobs_are_accepted_unless_they_run_or_die_or_others_speak_of_them() -> None:
    keys = keyspace(500)
    records = [entry for entry in keys if entry.key.startswith(RECORD)]
    originals = {entry.value[b"duplicate"] for entry in records if b"duplicate" in entry.value}
    sound = [
        entry
        for entry in records
        if entry.ttl_ms is None
        and entry.value[b"status"] != b"running"
        and is_untied(entry)
        and entry.value[b"jid"] not in originals
    ]
    found, accepted = prefiltered(BEE, keys, NOW)
    assert found == expected(BEE, keys, NOW)
    assert {finding.rule for finding in found[0]} == {"BEE-16"}, "whether a running job's worker lives"
    assert accepted == len(sound) > 330


@settings(max_examples=examples(300))
@given(changed(GENERATED, b"options", [*FIELDS, *TIES, b"result", b"ferryman", b"tenant"], [*OPTIONS, "timeout"]))
def test_an_audit_of_a_keyspace_with_changes_finds_and_counts_the_same(keys: list[Entry]) -> None:
    found, accepted = prefiltered(BEE, keys, NOW)
    event(f"found: {sorted({finding.rule for finding in found[0]})}, accepted: {accepted > 15}")
    assert found == expected(BEE, keys, NOW)


@settings(max_examples=examples(150))
@given(st.lists(entries(), max_size=6, unique_by=lambda entry: entry.key), st.lists(st.sampled_from(GENERATED), max_size=8))
def test_an_audit_of_any_keys_finds_and_counts_the_same(others: list[Entry], some: list[Entry]) -> None:
    keys = list({entry.key: evolve(entry, offset=0) for entry in [*others, *some]}.values())
    found, accepted = prefiltered(BEE, keys, NOW)
    event(f"accepted: {min(accepted, 3)}")
    assert found == expected(BEE, keys, NOW)


@pytest.mark.parametrize("case", captures("bee"), ids=str)
def test_an_audit_of_a_real_keyspace_finds_and_counts_the_same(case: Capture) -> None:
    keys, real = list(case.entries()), address("bee", case.prefix)
    found, _ = prefiltered(real, keys, case.captured_at_ms)
    assert found == expected(real, keys, case.captured_at_ms)


class KeysOfJob(NamedTuple):
    """The keys of a job that stands where it is accepted for; none of one that is not accepted."""

    keys: list[Entry]
    members: list[Member]
    owned: list[Entry]


def stands(record: Entry, *, for_transfer: bool = False, now_ms: int = NOW) -> KeysOfJob:
    accepted = accept(FAMILY.prefilter("bee", now_ms, for_transfer=for_transfer), record.value, record.key)
    if accepted is None:
        return KeysOfJob([], [], [])
    (index_key,), member, score = accepted.group.index_keys, record.key.removeprefix(RECORD), float(NOW)
    ties = [Entry(to_bytes(f"bee:s:tags:{tag}"), "set", [member]) for tag in dict.fromkeys(tag_names(record.value[b"tags"]))]
    if b"hash" in record.value:
        ties.append(Entry(b"bee:l:hashes:%b:%b" % (record.value[b"queue"], record.value[b"hash"]), "list", [member]))
    keys = [record, Entry(index_key.key, "zset", [(member, score)]), *ties]
    return KeysOfJob(keys, [Member(index_key.key, member, score, 0)], ties)


@given(st.sampled_from(RECORDS))
def test_the_subject_of_a_job_is_what_its_keys_state(record: Entry) -> None:
    keys, members, owned = stands(record)
    assert bool(keys) == (is_untied(record) and record.value[b"status"] not in (b"running", b"canceled", b"expired"))
    if keys:
        stated = join([fact for key in keys for fact in FAMILY.facts(key, "bee")])
        flat = tuple(text for pair in record.value.items() for text in pair)
        made = FAMILY.prefilter("bee", NOW).subject(record.key, flat, members, owned)
        assert (made.job_id, made.scope, set(made.facts)) == (stated.job_id, stated.scope, set(stated.facts))
        assert made.prefiltered


def test_what_should_have_expired_is_accepted_for_a_transfer_alone_and_no_rule_refuses_it() -> None:
    later = NOW + 10 * OPTIONS_TTL
    ended = Entry(b"bee:ss:expires:q", "zset", [(b"1", float(NOW))])
    assert FAMILY.prefilter("bee", NOW).index_members(ended).numbers[0] is not None
    assert FAMILY.prefilter("bee", later).index_members(ended).numbers == [None]
    assert FAMILY.prefilter("bee", later, for_transfer=True).index_members(ended).numbers[0] is not None
    for record in RECORDS:
        if record.value[b"status"] in (b"completed", b"failed") and (keys := stands(record, for_transfer=True).keys):
            seen = read_keyspace(FAMILY, keys, "bee", later)
            assert {finding.rule for finding in seen.findings() if finding.job_id is not None} == {"BEE-13"}
            assert not any(FAMILY.refusals(subject, seen.keyspace) for subject in seen.subjects.values())


def test_a_score_that_is_no_time_or_ahead_of_the_clock_is_for_the_rules() -> None:
    prefilter = FAMILY.prefilter("bee", NOW)
    scores = {"queue": [5.0, NOW - 1.0, NOW + 1_000.0, NOW + 1_001.0], "delayed": [5.0, NOW + 1e12, 1e300, float("inf")]}
    accepted = {"queue": [False, True, True, False], "delayed": [False, True, False, False]}
    for role, found in scores.items():
        entry = Entry(b"bee:ss:%b:q" % role.encode(), "zset", [(b"%d" % n, score) for n, score in enumerate(found)])
        numbers = prefilter.index_members(entry).numbers
        assert [number is not None for number in numbers] == accepted[role]


@settings(max_examples=examples(300))
@given(
    st.sampled_from([b"queued", b"new", b"retried", b"completed", b"failed"]),
    st.dictionaries(
        st.sampled_from([*FIELDS, b"result", b"hash", b"ferryman"]),
        st.sampled_from([b"{}", b"[]", b"0", b"-1", b"7", b"x", b"", b'["a",1,"a"]', b'["\\ud800"]', b"[{}]"]),
        max_size=2,
    ),
    st.none() | histories,
    st.none() | options,
)
def test_any_record_that_is_accepted_is_judged_as_the_rules_do(status, fields, history, chosen) -> None:
    record = next(each for each in RECORDS if each.value[b"status"] == status and is_untied(each))
    value = dict(record.value)
    if history is not None:
        value[b"history"] = json.dumps([*json.loads(value[b"history"]), *history]).encode()
    if chosen is not None:
        value[b"options"] = json.dumps({**OPTIONS, **chosen}).encode()
    keys = stands(evolve(record, value=value | fields)).keys
    event(f"accepted: {bool(keys)}")
    assert [finding for finding in read_keyspace(FAMILY, keys, "bee", NOW).findings() if finding.job_id is not None] == []


@given(hashes())
def test_any_hash_that_is_accepted_is_judged_as_the_rules_do(fields: dict[bytes, bytes]) -> None:
    keys = stands(Entry(RECORD + b"1", "hash", fields)).keys
    assert [finding for finding in read_keyspace(FAMILY, keys, "bee", NOW).findings() if finding.job_id is not None] == []
