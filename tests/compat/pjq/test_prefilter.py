"""Jobs of pjq that are accepted are left out of audits, and nothing of what rules find or count is missing."""

from __future__ import annotations

from collections import defaultdict

from ferryman.compat.pjq import FAMILY
from ferryman.compat.pjq.generate import generate_records
from ferryman.schema.fact import Entry, join
from ferryman.schema.prefilter import Member
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ...support.effort import examples
from ...support.prefiltered_audits import address, changed, expected, prefiltered
from ...support.prefiltering import accept
from .strategies import NOW_MS, entries, valid_records

PJQ = address("pjq", "")


def keyspace(jobs: int) -> list[Entry]:
    """Generated jobs in all of their keys, with the workers that have some of them."""
    keys: list[Entry] = []
    zsets: defaultdict[str, dict[bytes, float]] = defaultdict(dict)
    lists: defaultdict[str, list[bytes]] = defaultdict(list)
    busy: defaultdict[str, list[bytes]] = defaultdict(list)
    for made in generate_records(jobs, 5, NOW_MS):
        member, record, queue = made.id.encode(), made.record, made.queue
        keys.append(Entry(member, "hash", dict(record.fields)))
        for role, score in record.scores.items():
            if role == "seen":
                busy[queue].append(record.fields[b"worker_uuid"])
                zsets[f"workers_last_seen:{queue}"][record.fields[b"worker_uuid"]] = score
            else:
                zsets[f"jobs_{role}:{queue}"][member] = score
        if record.role == "queued":
            lists[f"jobs_queued:{queue}"].insert(0, member)  # popped from the tail
    keys += (Entry(key.encode(), "zset", sorted(scores.items(), key=lambda item: item[1])) for key, scores in zsets.items())
    keys += (Entry(f"workers_busy:{queue}".encode(), "set", [*dict.fromkeys(workers)]) for queue, workers in busy.items())
    return [*keys, *(Entry(key.encode(), "list", members) for key, members in lists.items())]


GENERATED = keyspace(25)
FIELDS = b"json dispatched_at started_at worker_uuid finished_at ferryman tenant".split()
MEMBERS = ["uuid", "queue_name", "created_at", "exitcode", "command"]


def test_generated_jobs_are_accepted_unless_a_worker_has_them_or_they_are_next() -> None:
    keys = keyspace(500)
    is_running = (b"jobs_dispatched:", b"jobs_processing:")
    running = sum(len(entry.value) for entry in keys if entry.key.startswith(is_running))
    queues = sum(entry.redis_type == "list" for entry in keys)
    found, accepted = prefiltered(PJQ, keys, NOW_MS)
    assert found == expected(PJQ, keys, NOW_MS)
    assert not found[0]
    assert accepted == 500 - running - queues > 400


@settings(max_examples=examples(300))
@given(changed(GENERATED, b"json", FIELDS, MEMBERS))
def test_an_audit_of_a_keyspace_with_changes_finds_and_counts_the_same(keys: list[Entry]) -> None:
    found, accepted = prefiltered(PJQ, keys, NOW_MS)
    event(f"found: {sorted({finding.rule for finding in found[0]})}, accepted: {accepted > 12}")
    assert found == expected(PJQ, keys, NOW_MS)


@settings(max_examples=examples(150))
@given(st.lists(entries(), max_size=6), st.lists(valid_records(), max_size=3))
def test_an_audit_of_any_keys_finds_and_counts_the_same(others: list[Entry], records: list[list[Entry]]) -> None:
    keys = list({entry.key: entry for entry in [*others, *(entry for each in records for entry in each)]}.values())
    found, accepted = prefiltered(PJQ, keys, NOW_MS)
    event(f"accepted: {min(accepted, 3)}")
    assert found == expected(PJQ, keys, NOW_MS)


def test_a_queue_whose_workers_are_idle_while_a_job_waits_is_found() -> None:
    idle = [Entry(b"workers_idle:ffmpeg", "set", [b"w"]), Entry(b"workers_last_seen:ffmpeg", "zset", [(b"w", NOW_MS / 1000)])]
    keys = [*({entry.key: entry for entry in [*GENERATED, *idle]}).values()]
    found, _ = prefiltered(PJQ, keys, NOW_MS)
    assert "PJQ-24" in {finding.rule for finding in found[0]}
    assert found == expected(PJQ, keys, NOW_MS)


@given(st.sampled_from([entry for entry in GENERATED if entry.redis_type == "hash"]), st.integers(0, 99))
def test_the_subject_of_a_job_is_what_its_keys_state(record: Entry, rank: int) -> None:
    prefilter = FAMILY.prefilter("", NOW_MS)
    accepted = accept(prefilter, record.value, record.key)
    assert accepted is not None
    (index_key,), (score,) = accepted.group.index_keys, accepted.scores
    value = [(record.key, score)] if index_key.is_scored else [record.key]
    index = Entry(index_key.key, "zset" if index_key.is_scored else "list", value, None, rank)
    stated = join([fact for key in (record, index) for fact in FAMILY.facts(key, "")])
    flat = tuple(text for pair in record.value.items() for text in pair)
    made = prefilter.subject(record.key, flat, [Member(index_key.key, record.key, score, rank)], ())
    assert (made.job_id, made.scope, set(made.facts)) == (stated.job_id, stated.scope, set(stated.facts))
    assert made.prefiltered
