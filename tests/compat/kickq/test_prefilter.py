"""Jobs of kickq that are accepted are left out of audits, and nothing of what rules find or count is missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from attrs import evolve
from ferryman.compat.kickq import FAMILY
from ferryman.compat.kickq.generate import generate_records
from ferryman.compat.kickq.prefilter import NEEDED
from ferryman.schema.fact import Entry, join
from ferryman.schema.prefilter import Member
from ferryman.testing.keyspaces import read_keyspace
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ...support.effort import examples
from ...support.prefiltered_audits import address, changed, expected, prefiltered
from ...support.prefiltering import accept
from .keyspaces import NOW, document
from .strategies import documents, hashes, valid_records

KICKQ = address("kickq", "kickq")


def keyspace(jobs: int) -> list[Entry]:
    """Generated jobs in all of their keys."""
    keys: list[Entry] = []
    sets: defaultdict[bytes, list[bytes]] = defaultdict(list)
    zsets: defaultdict[bytes, dict[bytes, float]] = defaultdict(dict)
    lists: defaultdict[bytes, list[bytes]] = defaultdict(list)
    roles = {"time_index": b"kickq:time-index", "scheduled": b"kickq:scheduled", "purge": b"kickq:scheduled-purge"}
    for made in generate_records(jobs, 5, NOW):
        member, record = made.id.encode(), made.record
        keys.append(Entry(b"kickq:job:" + member, "hash", record.hash))
        sets[b"kickq:state:" + record.fields[b"state"]].append(member)
        for role, score in record.scores.items():
            zsets[roles[role]][member] = score
        if made.position is not None:
            lists[b"kickq:queue:" + made.queue.encode()].append(member)
    keys += (Entry(key, "set", members) for key, members in sets.items())
    keys += (Entry(key, "zset", sorted(scores.items(), key=lambda item: item[1])) for key, scores in zsets.items())
    return [*keys, *(Entry(key, "list", members) for key, members in lists.items()), Entry(b"kickq:id", "string", b"%d" % jobs)]


GENERATED = keyspace(25)
FIELDS = [*NEEDED, b"ferryman", b"tenant"]


def test_generated_jobs_are_accepted_unless_a_worker_has_them() -> None:
    keys = keyspace(500)
    active = next(len(entry.value) for entry in keys if entry.key == b"kickq:state:processing")
    found, accepted = prefiltered(KICKQ, keys, NOW)
    assert found == expected(KICKQ, keys, NOW)
    assert not found[0]
    assert accepted == 500 - active > 450


@settings(max_examples=examples(300))
@given(changed(GENERATED, b"itemData", FIELDS, [*document()]))
def test_an_audit_of_a_keyspace_with_changes_finds_and_counts_the_same(keys: list[Entry]) -> None:
    found, accepted = prefiltered(KICKQ, keys, NOW)
    event(f"found: {sorted({finding.rule for finding in found[0]})}, accepted: {accepted > 20}")
    assert found == expected(KICKQ, keys, NOW)


@settings(max_examples=examples(150))
@given(st.lists(valid_records(), max_size=3), st.lists(hashes(), max_size=2))
def test_an_audit_of_any_records_finds_and_counts_the_same(records, others) -> None:
    keys = merged([*(entry for each in records for entry in each), *(Entry(b"kickq:job:1", "hash", each) for each in others)])
    found, accepted = prefiltered(KICKQ, keys, NOW)
    event(f"accepted: {min(accepted, 3)}")
    assert found == expected(KICKQ, keys, NOW)


def merged(entries: Iterable[Entry]) -> list[Entry]:
    """One entry for each key, with what all of these say of it."""
    keys: dict[bytes, Entry] = {}
    for entry in entries:
        before: Any = keys[entry.key].value if entry.key in keys else []
        if entry.redis_type == "hash":
            keys[entry.key] = entry
        elif entry.redis_type == "zset":
            keys[entry.key] = evolve(entry, value=sorted((dict(before) | dict(entry.value)).items(), key=lambda item: item[1]))
        else:
            keys[entry.key] = evolve(entry, value=list(dict.fromkeys([*before, *entry.value])))
    return list(keys.values())


HASHES = [entry for entry in GENERATED if entry.redis_type == "hash"]


def stands(record: Entry, *, for_transfer: bool, now_ms: int) -> tuple[list[Entry], list[Member]]:
    """The keys of a job that stands where it is accepted for, and its entries in indexes; nothing where it is not accepted."""
    accepted = accept(FAMILY.prefilter("kickq", now_ms, for_transfer=for_transfer), record.value, record.key)
    if accepted is None:
        return [], []
    member, keys, members = record.key.removeprefix(b"kickq:job:"), [record], []
    for index_key, score in zip(accepted.group.index_keys, accepted.scores, strict=True):
        key = index_key.key
        redis_type = "zset" if index_key.is_scored else "set" if key.startswith(b"kickq:state:") else "list"
        keys.append(Entry(key, redis_type, [(member, score)] if index_key.is_scored else [member]))
        members.append(Member(key, member, score, 0))
    return keys, members


@given(st.sampled_from(HASHES))
def test_the_subject_of_a_job_is_what_its_keys_state(record: Entry) -> None:
    keys, members = stands(record, for_transfer=False, now_ms=NOW)
    assert keys or record.value[b"state"] == b"processing"
    if keys:
        stated = join([fact for key in keys for fact in FAMILY.facts(key, "kickq")])
        flat = tuple(text for pair in record.value.items() for text in pair)
        made = FAMILY.prefilter("kickq", NOW).subject(record.key, flat, members, ())
        assert (made.job_id, made.scope, set(made.facts)) == (stated.job_id, stated.scope, set(stated.facts))
        assert made.prefiltered


def test_what_is_late_is_accepted_for_a_transfer_alone_and_no_rule_refuses_it() -> None:
    later = NOW + 10**12
    late = [record for record in HASHES if record.value[b"state"] in (b"success", b"delayed")]
    for record in late:
        keys, _ = stands(record, for_transfer=True, now_ms=later)
        assert keys
        assert stands(record, for_transfer=False, now_ms=later) == ([], [])
        seen = read_keyspace(FAMILY, keys, "kickq", later)
        assert {finding.rule for finding in seen.findings()} <= {"KICKQ-13", "KICKQ-16", "KICKQ-21"}
        assert not any(FAMILY.refusals(subject, seen.keyspace) for subject in seen.subjects.values())
    assert late


@given(documents())
def test_any_document_in_a_sound_record_is_judged_as_the_rules_do(text: bytes) -> None:
    for record in (HASHES[0], evolve(HASHES[0], key=b"kickq:job:1")):
        keys, _ = stands(evolve(record, value=record.value | {b"itemData": text}), for_transfer=False, now_ms=NOW)
        seen = read_keyspace(FAMILY, keys, "kickq", NOW)
        assert [finding for finding in seen.findings() if finding.job_id is not None] == []
