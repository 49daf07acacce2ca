"""The qless reader against what the original's own API said about captured keyspaces of all generations, and by single cases."""

from __future__ import annotations

import base64
import json
from functools import cache
from random import Random
from typing import Any

import pytest
from ferryman.compat.qless import FAMILY
from ferryman.compat.qless.keys import PATTERNS, Generation, era_of, layout
from ferryman.schema.fact import Entry, FactKind, Subject
from ferryman.schema.job import Job, State
from ferryman.schema.keys import KeyLayout
from ferryman.schema.text import to_bytes, to_text
from ferryman.testing.keyspaces import read_keyspace
from hypothesis import example, given
from hypothesis import strategies as st

from ...support import reading
from ...support.captures import Capture, capture, captures
from ...support.reading import reading_of
from .strategies import entries

CAPTURES = captures("qless")
NEVER_MS = 253_402_300_799_999


@cache
def jobs(case: Capture) -> dict[str, Job]:
    seen = reading_of(case)
    found = {subject.job_id: FAMILY.read(subject, seen.keyspace) for subject in seen.subjects.values() if not subject.scope}
    return {job_id: job for job_id, job in found.items() if job is not None}


def text(value: Any) -> Any:
    """A text of expected.json as ferryman has it: bytes that are no UTF-8 stand there as base64, in keys as JSON of that."""
    if isinstance(value, str) and value.startswith('{"b64"'):
        value = json.loads(value)
    return to_text(base64.b64decode(value["b64"])) if isinstance(value, dict) and "b64" in value else value


def said_of(case: Capture) -> dict[str, dict[str, Any]]:
    return {text(job_id): said for job_id, said in case.expected["jobs_by_id"].items()}


def ms(seconds: float | None) -> int | None:
    return None if seconds is None else min(round(seconds * 1000), NEVER_MS)


each_capture = reading.each_capture("qless")
each_job = pytest.mark.parametrize(
    ("case", "job_id"),
    [pytest.param(case, job_id, id=f"{case}-{number}") for case in CAPTURES for number, job_id in enumerate(said_of(case))],
)


@each_capture
def test_every_job_is_read_and_no_other(case: Capture) -> None:
    # What the original's own API raises at: priorities that are no numbers, and the stub of an evicted job.
    unreadable = case.expected.get("unreadable_by_api", {})
    assert jobs(case).keys() - unreadable.keys() == said_of(case).keys()
    assert unreadable.keys() <= jobs(case).keys()
    assert len(said_of(case)) == case.expected["jobs"]


@each_capture
def test_jobs_are_counted_by_state_and_queue_as_qless_counts_them(case: Capture) -> None:
    found = [jobs(case)[job_id] for job_id in said_of(case)]
    for state, number in case.expected["by_canonical_state"].items():
        assert sum(job.state == state for job in found) == number, state
    for queue, by_word in case.expected["by_queue"].items():
        words = [said["state"] for said in said_of(case).values() if text(said["queue"]) == text(queue)]
        assert len(words) == sum(by_word.values()), queue
        if queue:
            # Those that are complete count in the queue where they completed; in the first weeks the failed ones too.
            unfinished = [job for job in found if job.state is not State.COMPLETED and job.queue == text(queue)]
            assert len(unfinished) >= len(words), queue


@each_job
def test_what_qless_says_of_a_job_is_what_the_reader_says(case: Capture, job_id: str) -> None:
    job, said = jobs(case)[job_id], said_of(case)[job_id]
    assert job.state == said["canonical_state"]
    assert job.payload == to_bytes(text(said["payload"]))
    assert job.priority == said["priority"]
    assert job.due_at == ms(said.get("due_at")) or (job.state is State.BLOCKED and said.get("due_at") is None)
    assert job.depends_on == tuple(sorted(map(text, said.get("dependencies", []))))
    assert job.name == text(said.get("klass", ""))
    if said["queue"] != "":
        assert job.queue == text(said["queue"])
    tags = [tag if isinstance(tag := text(each), str) else f"{tag:.14g}" for each in said["tags"]]
    assert list(job.tags) == ([] if job_id == "tags-object" else tags)
    if said["worker"] and job.state is State.ACTIVE:
        assert job.worker == text(said["worker"])


@each_job
def test_attempts_failures_and_leases_are_those_of_the_original(case: Capture, job_id: str) -> None:
    job, said = jobs(case)[job_id], said_of(case)[job_id]
    failure = {name: text(shown) for name, shown in (said.get("failure") or {}).items()}
    if isinstance(said.get("retries"), int):
        assert job.max_attempts == said["retries"] + 1
        assert (job.attempts or 0) >= said["retries"] - said["remaining"] + (job.state is State.ACTIVE)
    if failure:
        assert job.error == f"{failure['group']}: {failure['message']}"
    if job.state is State.FAILED and failure:
        assert (job.finished_at, job.worker) == (ms(failure["when"]), failure["worker"] or None)
    if job.state is State.ACTIVE and "lease_expired" in said and job.lease_expires_at is not None:
        assert (job.lease_expires_at <= case.captured_at_ms) == said["lease_expired"]


@each_job
def test_the_history_is_that_of_the_original(case: Capture, job_id: str) -> None:
    job, said = jobs(case)[job_id], said_of(case)[job_id]
    shown = [{name: text(value) for name, value in event.items()} for event in said.get("history", [])]
    if all("what" in event for event in shown):
        assert [_readable(event) for event in job.history] == [_readable(event) for event in shown]
        assert [event["what"].encode() for event in shown if _is_log(event)] == list(job.logs)
        popped = [event["when"] for event in shown if event["what"] == "popped"]
    else:
        # One entry for each stay in a queue: what qless makes of it when it converts the job.
        puts = [(event.get("q", event.get("queue")), event["put"]) for event in shown]
        assert [(event["q"], event["when"]) for event in job.history if event["what"] == "put"] == puts
        popped = [event["popped"] for event in shown if event.get("popped")]
        done = [event["done"] for event in shown if event.get("done")]
        assert [event["when"] for event in job.history if event["what"] == "done"] == done
    assert (job.attempts or 0) >= len(popped)
    if job.state is not State.ACTIVE:
        assert job.started_at == (ms(popped[-1]) if popped else None)


def _readable(event: Any) -> Any:
    """The original shows what a client logged beside its text among the rest."""
    about = event.get("about", {})
    rest = {name: value for name, value in event.items() if name != "about"}
    # Old versions noted some times with a fraction, which newer ones drop.
    rest["when"] = int(rest["when"])
    return {**rest, **about} if isinstance(about, dict) else rest


def _is_log(event: dict[str, Any]) -> bool:
    own = {"put", "popped", "done", "failed", "timed-out", "throttled"}
    return event["what"] not in own


@pytest.mark.parametrize("case", [case for case in CAPTURES if not case.name.startswith("crashed")], ids=str)
def test_positions_are_the_order_in_which_real_workers_popped(case: Capture) -> None:
    """Beside the waiting jobs workers pop locks that are over, scheduled jobs that are due and children of recurring jobs."""
    orders = {**case.expected["pop_order"], **case.expected.get("pop_order_if_unpaused", {})}
    checked = 0
    for queue, ids in orders.items():
        waiting = [job for job in jobs(case).values() if job.queue == text(queue) and job.position is not None]
        order = [job.id for job in sorted(waiting, key=lambda job: job.position or 0)]
        popped = [job_id for job_id in map(text, ids) if job_id in order]
        # Where a throttle has no slot left, the original stops.
        assert popped == (order[: len(popped)] if case.name.startswith("reqless") else order), queue
        ranks = [jobs(case)[job_id].rank or 0 for job_id in order]
        assert ranks == sorted(ranks)
        for job_id in set(map(text, ids)) - set(order):
            other = jobs(case).get(job_id)
            assert other is None or other.state in (State.ACTIVE, State.SCHEDULED) or other.queue != text(queue)
        checked += len(popped)
    assert checked > 5


def test_a_crashed_keyspace_is_popped_in_order_until_the_original_fails() -> None:
    case = capture("qless", "crashed")
    for queue, ids in case.expected["pop_order"].items():
        waiting = [job for job in jobs(case).values() if job.queue == queue and job.position is not None]
        order = [job.id for job in sorted(waiting, key=lambda job: job.position or 0)]
        popped = [job_id for job_id in ids if job_id in order]
        assert popped == (order if popped else [])


@pytest.mark.parametrize(
    ("name", "generation", "lower_first", "version"),
    [
        ("seed-layout", Generation.SEED, True, "qless of its first days (March 5th, 2012)"),
        ("first-core", Generation.FIRST, True, "qless of March and April 2012"),
        ("lower-first", Generation.JID, True, "qless of April and May 2012, where the lowest priority runs first"),
        ("older-version", Generation.JID, False, "qless of 2012 and 2013 (qless-py 0.9)"),
        ("pypi-0.11.4", Generation.UNIFIED, False, "qless since 2013 (qless-py 0.10 and later)"),
        ("healthy", Generation.UNIFIED, False, "qless-core of late 2013 to 2024"),
        ("reqless-0.13.3", Generation.REQLESS, False, "reqless 0.13 and later"),
    ],
)
def test_the_generation_is_told_from_the_keys(name: str, generation: Generation, lower_first: bool, version: str) -> None:
    keyspace = reading_of(capture("qless", name)).keyspace
    era = era_of(keyspace)
    assert (era.generation, era.lower_first, FAMILY.version(keyspace)) == (generation, lower_first, version)


def test_a_keyspace_begun_by_an_older_version_names_both() -> None:
    keyspace = reading_of(capture("qless", "upgraded")).keyspace
    expected = "qless since 2013 (qless-py 0.10 and later), with jobs of qless of 2012 and 2013 (qless-py 0.9)"
    assert FAMILY.version(keyspace) == expected


def test_patterns_of_queue_names_in_its_own_keys_are_of_the_newest_reqless() -> None:
    patterns = Entry(b"ql:qp:priorities", "list", [b"{}"])
    keyspace = read_keyspace(FAMILY, [record(throttles=b"[]"), patterns], "ql", 0).keyspace
    assert FAMILY.version(keyspace) == "reqless after 0.13.3"


@each_capture
def test_prefix_and_queues_are_recognised(case: Capture) -> None:
    found = [prefix for entry in case.entries() for prefix in FAMILY.prefixes(entry.key, entry.redis_type)]
    assert set(found) == {"ql"}
    if "queues_in_order" in case.expected:
        assert set(FAMILY.queues(reading_of(case).keyspace)) == set(map(text, case.expected["queues_in_order"]))


def test_little_is_kept_of_a_job_that_the_writer_would_write_nearly_the_same_way() -> None:
    failed = [job for job in jobs(capture("qless", "healthy")).values() if job.state is State.FAILED]
    # The time of the last pop has more digits than a canonical time; a job whose retries are exhausted has none left.
    assert {name for job in failed for name in job.extra["qless"]["state_fields"]} == {"time"}
    assert {name for job in failed for name in job.extra["qless"].get("fields", {})} <= {
        "spawned_from_jid",
        "failure",
        "remaining",
    }
    assert all(job.extra["qless"].keys() <= {"fields", "state_fields", "tagged"} for job in failed)


# Single cases


def one(*given_entries: Entry) -> Job:
    """The only job that the entries describe."""
    seen = read_keyspace(FAMILY, given_entries, "ql", 0)
    found = [FAMILY.read(subject, seen.keyspace) for subject in seen.subjects.values()]
    [job] = [job for job in found if job is not None]
    return job


def record(**fields: bytes) -> Entry:
    valid = {b"jid": b"1", b"queue": b"q", b"klass": b"K", b"state": b"waiting", b"data": b"{}"}
    return Entry(b"ql:j:1", "hash", valid | {name.encode(): value for name, value in fields.items()})


@pytest.mark.parametrize(
    ("word", "role", "state"),
    [
        (b"waiting", "work", State.WAITING),
        (b"waiting", "scheduled", State.SCHEDULED),
        (b"stalled", "work", State.WAITING),
        (b"throttled", "throttled", State.BLOCKED),
        (b"throttled", "work", State.WAITING),
        (b"depends", "depends", State.BLOCKED),
        (b"pending", "locks", State.ACTIVE),
        (b"running", "work", State.ACTIVE),
        (b"recur", "work", State.UNKNOWN),
        (b"\xff", "work", State.UNKNOWN),
    ],
)
def test_states_are_words_and_sometimes_places(word: bytes, role: str, state: State) -> None:
    index = Entry(f"ql:q:q-{role}".encode(), "zset", [(b"1", 1.0)])
    assert one(record(state=word), index).state is state


def test_names_of_jobs_and_queues_may_look_like_keys() -> None:
    facts = [
        (b"ql:j:x-history", "hash", "record", "x-history"),
        (b"ql:j:x-history", "list", "history", "x"),
        (b"ql:j:x-dependents-dependencies", "set", "dependencies", "x-dependents"),
        (b"ql:j:", "hash", "record", ""),
        (b"ql:j:\xff\n", "hash", "record", "\udcff\n"),
    ]
    for key, redis_type, role, job_id in facts:
        value: Any = {b"a": b"b"} if redis_type == "hash" else [b"y"]
        [fact, *_] = FAMILY.facts(Entry(key, redis_type, value), "ql")
        assert (fact.role, fact.job_id) == (role, job_id)
    for key, role, queue in [
        (b"ql:q:a-work-locks", "locks", "a-work"),
        (b"ql:q:-work", "work", ""),
        (b"ql:q:ql:q:x-work-work", "work", "ql:q:x-work"),
        (b"ql:q:plain", "beats", "plain"),
    ]:
        [fact] = FAMILY.facts(Entry(key, "zset", [(b"1", 0.0)]), "ql")
        assert (fact.role, fact.queue) == (role, queue)


@given(
    st.text(max_size=6),
    st.sampled_from(PATTERNS),
    st.sampled_from(["hash", "zset", "list", "set", "string"]),
    st.binary(max_size=9),
)
def test_keys_are_parsed_as_by_the_whole_layout(name: str, pattern: Any, redis_type: str, tail: bytes) -> None:
    whole = KeyLayout(PATTERNS, prefix="ql")
    template = dict.fromkeys(("id", "queue", "group", "tag", "worker", "throttle", "measure", "day"), name)
    for key in (whole.key(pattern.role, **template), b"ql:" + tail, tail):
        slow, quick = whole.parse(key, redis_type), layout("ql").parse(key, redis_type)
        assert (slow and (slow.role, slow.fields)) == (quick and (quick.role, quick.fields))


def test_keys_of_others_are_left_alone() -> None:
    for key in (b"ql2:j:1", b"qlj", b"q:jobs", b"qmore:other", b"ql"):
        assert list(FAMILY.facts(Entry(key, "hash", {b"jid": b"t"}), "ql")) == []


@pytest.mark.parametrize(
    ("key", "redis_type", "role"),
    [
        (b"ql:j:5", "string", "record"),
        (b"ql:rs:gpu", "hash", "nameless"),
        (b"ql:q:mail-work", "list", "work"),
        (b"ql:queues", "set", "queues"),
        (b"ql:s:other:1:q", "hash", "nameless"),
        (b"qmore:dynamic", "string", "name_patterns"),
    ],
)
def test_a_key_of_ours_that_makes_no_sense_is_odd(key: bytes, redis_type: str, role: str) -> None:
    value: Any = b"" if redis_type == "string" else {} if redis_type == "hash" else []
    [fact] = FAMILY.facts(Entry(key, redis_type, value), "ql")
    assert (fact.kind, fact.role, fact.job_id) == (FactKind.ODD, role, None)


def test_an_old_history_in_the_hash_becomes_the_events_that_qless_makes_of_it() -> None:
    raw = b'[{"q":"a","put":1,"popped":2,"worker":"w","failed":3},["b",4.5,null,null,""],{"q":"c"}]'
    assert one(record(history=raw)).history == (
        {"what": "put", "when": 1, "q": "a"},
        {"what": "popped", "when": 2, "worker": "w"},
        {"what": "failed", "when": 3},
        {"what": "put", "when": 4.5, "q": "b"},
    )


def test_what_a_client_logged_is_a_log_line_and_part_of_the_history() -> None:
    lines = [b'[5,"put",{"q":"q"}]', b'[6,"half way",{"done":5}]', b'[7,"put","by hand"]', b'[8,"done"]', b"junk"]
    job = one(record(), Entry(b"ql:j:1-history", "list", lines))
    assert job.logs == (b"half way", b"put")
    assert [event["what"] for event in job.history] == ["put", "half way", "put", "done"]
    assert job.extra["qless"]["history"] == lines


def test_entries_of_a_history_that_arrive_in_parts_are_put_in_order() -> None:
    parts = [Entry(b"ql:j:1-history", "list", [b'[3,"c"]'], offset=2), Entry(b"ql:j:1-history", "list", [b'[1,"a"]', b'[2,"b"]'])]
    assert one(record(), *parts).logs == (b"a", b"b", b"c")


def test_a_failure_tells_the_error_whatever_it_is_made_of() -> None:
    for raw, error in [
        (b'{"group":"g","message":"m"}', "g: m"),
        (b'{"type":"g","message":"m"}', "g: m"),
        (b'{"group":5,"message":["x"]}', None),
        (b"[]", None),
        (b"[[[", None),
    ]:
        assert one(record(failure=raw)).error == error


@given(st.lists(entries(), min_size=1, max_size=4), st.randoms())
@example([Entry(b"ql:j:1-dependencies", "set", [b"%d" % number for number in range(2, 12)])], Random(1))
def test_the_order_of_facts_does_not_matter(keys: list[Entry], random: Any) -> None:
    own = record()
    keys = [own, *(entry for entry in keys if entry.key != own.key)]
    seen = read_keyspace(FAMILY, {(entry.key, entry.offset): entry for entry in keys}.values(), "ql", 0)
    subject = seen.subjects["", "1"]
    shuffled = list(subject.facts)
    random.shuffle(shuffled)
    again = Subject("1", "", tuple(shuffled))
    assert FAMILY.read(subject, seen.keyspace) == FAMILY.read(again, seen.keyspace)
    assert list(FAMILY.findings(subject, seen.keyspace)) == list(FAMILY.findings(again, seen.keyspace))
