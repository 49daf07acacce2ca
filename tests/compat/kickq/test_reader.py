"""The kickq reader against what kickq's own API said about captured keyspaces."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ferryman.compat.kickq import FAMILY
from ferryman.schema.fact import Entry, FactKind
from ferryman.schema.job import State
from ferryman.schema.odd_key import NAMELESS
from ferryman.schema.text import load_json
from ferryman.testing.keyspaces import read_keyspace

from ...support import reading
from ...support.captures import Capture, capture, captures
from ...support.reading import assert_all_read, assert_counted, jobs, popped, reading_of
from .keyspaces import FAILED, document, one, record

CAPTURES = captures("kickq")
CUT = {"48", "49", "50", "51", "52"}
"""Jobs of the crashed capture of whose documents only the id is left."""


def queue_said(said: dict[str, Any]) -> str:
    queue: str = said.get("queue_from_hash", said["queue"])
    return queue


each_capture = reading.each_capture("kickq")
each_job = reading.each_job("kickq")


@each_capture
def test_every_job_is_read_and_no_other(case: Capture) -> None:
    assert_all_read(case, jobs(case))


@each_capture
def test_jobs_are_counted_by_state_and_queue_as_kickq_counts_them(case: Capture) -> None:
    assert_counted(
        jobs(case).values(),
        case.expected["by_canonical_state"],
        case.expected.get("by_queue_recovered", case.expected["by_queue"]),
    )


@each_job
def test_what_kickq_says_of_a_job_is_what_the_reader_says(case: Capture, job_id: str) -> None:
    job, said = jobs(case)[job_id], case.expected["jobs_by_id"][job_id]
    assert (job.state, job.queue, job.name) == (said["canonical_state"], queue_said(said), queue_said(said))
    if job_id not in CUT or case.name != "crashed":
        assert (job.created_at, job.updated_at) == (said["created_at"], said["updated_at"])
    assert (job.priority, job.finished_at, job.ttl) == (None, said["finished_at"], said["process_timeout"])
    assert job.attempts == said["attempts_made"] + (job.state is State.ACTIVE)
    assert (None if job.payload is None else load_json(job.payload)) == said["payload"]
    assert (job.result, job.progress, job.worker, job.tags, job.depends_on, job.logs) == (None, None, None, (), (), ())


@each_job
def test_a_job_may_run_as_often_as_retries_and_slow_runs_allow(case: Capture, job_id: str) -> None:
    job, said = jobs(case)[job_id], case.expected["jobs_by_id"][job_id]
    retries = max(1, said["retry_times"]) if said["retry"] else 1
    assert job.max_attempts == retries + (said["ghost_times"] if said["ghost_retry"] else 0)


@each_job
def test_a_job_is_due_when_the_scheduled_set_says_so(case: Capture, job_id: str) -> None:
    job, said = jobs(case)[job_id], case.expected["jobs_by_id"][job_id]
    if job_id in CUT and case.name == "crashed":
        return  # kickq's own API knows only what the document says.
    assert job.due_at == (said["scheduled_for"] if job.state is State.SCHEDULED else None)


@each_job
def test_the_error_is_that_of_the_last_run(case: Capture, job_id: str) -> None:
    job, said = jobs(case)[job_id], case.expected["jobs_by_id"][job_id]
    if said["runs"] and said["runs"][-1]["state"] != "success":
        error = said["last_error"]
        assert job.error == (error if isinstance(error, str) else json.dumps(error, ensure_ascii=False, separators=(",", ":")))
    else:
        assert job.error is None


@each_job
def test_every_run_stands_in_the_history(case: Capture, job_id: str) -> None:
    job, said = jobs(case)[job_id], case.expected["jobs_by_id"][job_id]
    assert [(event["state"], event["started_at"], event["finished_at"]) for event in job.history] == [
        (run["state"], run["startTime"], run["startTime"] + run["processTime"]) for run in said["runs"]
    ]
    for event, run in zip(job.history, said["runs"], strict=True):
        error = run.get("error", run.get("errorMessage"))
        assert event["error"] == error or load_json(event["error"].encode()) == error


@each_job
def test_what_has_no_canonical_field_is_kept_byte_for_byte(case: Capture, job_id: str) -> None:
    """What kickq says of a job's options is what is kept, or the default that nothing needs to be kept for."""
    job, said = jobs(case)[job_id], case.expected["jobs_by_id"][job_id]
    item = job.extra.get("kickq", {}).get("item", {})
    options = {"retryInterval": "retry_interval", "ghostTimes": "ghost_times", "ghostInterval": "ghost_interval"}
    options |= {"hotjob": "hotjob", "hotjobTimeout": "hotjob_timeout"}
    defaults = {"hotjob": False, "hotjobTimeout": 10_000, "ghostTimes": 1, "retryInterval": 1_800_000, "ghostInterval": 1_800_000}
    for member, name in options.items():
        stored = item.get(member)
        assert (defaults[member] if stored is None else load_json(stored)) == said[name]
    if "lastError" in item and item["lastError"] is not None:
        assert load_json(item["lastError"]) == said["last_error"]


@pytest.mark.parametrize("case", [case for case in CAPTURES if case.name != "crashed"], ids=str)
def test_positions_are_the_order_in_which_real_workers_popped(case: Capture) -> None:
    assert popped(case) == {queue: ids for queue, ids in case.expected["pop_order"].items() if ids}


def test_in_the_crashed_keyspace_only_jobs_in_the_list_of_their_own_queue_have_a_place() -> None:
    case = capture("kickq", "crashed")
    expected = dict(case.expected["pop_order"])
    # Jobs 52 and 54 stand in lists of other queues, job 43 is finished, and job 47 would run twice.
    assert (expected.pop(""), expected.pop("move:to"), expected.pop("by hand")) == (["52"], ["54"], ["43"])
    expected["by hand 3"] = ["47"]
    assert popped(case) == expected


@each_capture
def test_only_waiting_jobs_have_a_position(case: Capture) -> None:
    assert all(job.state is State.WAITING for job in jobs(case).values() if job.position is not None)


@pytest.mark.parametrize(
    ("name", "versions"),
    [
        ("healthy", "1.0 to 1.1"),
        ("custom-prefix", "1.0 to 1.1"),
        ("older-version", "0.0.12 to 0.2.4"),
        ("older-version-0.0.13", "0.0.12 to 0.2.4"),
        ("older-version-0.0.10", "0.0.1 to 0.0.11"),
    ],
)
def test_the_version_is_told_from_the_keys(name: str, versions: str) -> None:
    assert FAMILY.version(reading_of(capture("kickq", name)).keyspace) == versions


def test_the_version_is_unknown_where_nothing_ever_ran() -> None:
    entries = [record(), Entry(b"kickq:state:new", "set", [b"1"])]
    assert FAMILY.version(read_keyspace(FAMILY, entries, "kickq", 0).keyspace) is None
    assert FAMILY.version(read_keyspace(FAMILY, [], "kickq", 0).keyspace) is None


def test_an_upgraded_keyspace_is_told_by_runs_of_both_kinds() -> None:
    old = record(b"2", **{**FAILED, "runs": [{"count": 1, "state": "fail", "errorMessage": "x"}]})
    assert FAMILY.version(read_keyspace(FAMILY, [old, record(**FAILED)], "kickq", 0).keyspace) == (
        "1.0 to 1.1, upgraded from 0.0.1 to 0.0.11"
    )


# Single records


def test_a_job_with_kickqs_own_defaults_keeps_only_that_it_is_not_retried() -> None:
    job = jobs(capture("kickq", "healthy"))["40"]
    assert job.extra == {"kickq": {"item": {"retry": b"false", "retryTimes": b"3", "ghostRetry": b"true"}}}


def test_the_payload_is_the_exact_text_with_its_numbers_and_half_surrogates() -> None:
    job = one(record(raw=b'{"id":"1", "name":"q" ,"data": {"n":1.50,"u":"\\ud800 \xe2\x80\xa8"} }', state=b"new"))
    assert job.payload == b'{"n":1.50,"u":"\\ud800 \xe2\x80\xa8"}'


@pytest.mark.parametrize(
    ("text", "queue"), [(b'"a"', "a"), (b"7", "hash"), (b"null", "hash"), (b'""', ""), (b'"x\\ud83d"', "x\ufffd")]
)
def test_the_queue_is_the_name_in_the_document_or_that_in_the_hash(text: bytes, queue: str) -> None:
    entry = record(raw=b'{"id":"1","name":' + text + b"}", name=b"hash")
    assert one(entry).queue == queue


def test_a_cut_document_leaves_the_queue_and_the_times_of_the_hash() -> None:
    job = jobs(capture("kickq", "crashed"))["50"]
    assert (job.queue, job.state, job.payload, job.created_at) == ("http calls", State.SCHEDULED, None, 1795263035950)
    assert job.due_at == 1795264836143


@pytest.mark.parametrize("raw", [b"", b"null", b"[]", b"{", b'{"id":"1"', b"\xff", b'"x"', b"[" * 100_000, b'{"a":' * 100_000])
def test_an_unreadable_document_is_kept_as_it_is(raw: bytes) -> None:
    job = one(record(raw=raw, state=b"new", name=b"mail"))
    assert (job.queue, job.state, job.payload, job.attempts, job.max_attempts) == ("mail", State.WAITING, None, None, None)
    assert job.extra["kickq"]["text"] == raw


@pytest.mark.parametrize(
    ("word", "state"),
    [
        (b"new", State.WAITING),
        (b"queued", State.WAITING),
        (b"ghost", State.SCHEDULED),
        (b"cancelled", State.UNKNOWN),
        (b"", State.UNKNOWN),
        (b"\xff", State.UNKNOWN),
    ],
)
def test_the_word_of_the_hash_counts_and_not_that_of_the_document(word: bytes, state: State) -> None:
    assert one(record(state=word, item_state="success")).state == state


@pytest.mark.parametrize(
    ("limit", "ttl"), [(1, 1), (10_000, 10_000), (2**31 - 1, 2**31 - 1), (2**31, None), (0, None), (None, None), ("5", None)]
)
def test_a_limit_of_the_run_time_that_kickq_could_not_keep_is_none(limit: Any, ttl: int | None) -> None:
    assert one(record(processTimeout=limit)).ttl == ttl


@pytest.mark.parametrize("runs", [None, {}, "x", 5])
def test_runs_that_are_no_list_say_nothing_and_are_kept(runs: Any) -> None:
    job = one(record(runs=runs))
    assert (job.attempts, job.history) == (None, ())
    assert load_json(job.extra["kickq"]["item"]["runs"]) == runs


def test_runs_of_nonsense_stay_in_the_history() -> None:
    job = one(record(runs=[5, {"state": "fail", "startTime": 2**70, "processTime": True, "error": [1.5, {"a": None}]}]))
    assert job.history == ({}, {"state": "fail", "started_at": None, "finished_at": None, "error": '[1.5,{"a":null}]'})
    assert job.attempts == 2


def test_a_hash_that_arrives_in_parts_is_one_record() -> None:
    whole = record().value | {b"tenant%d" % number: b"x" for number in range(9)}
    parts = [Entry(b"kickq:job:1", "hash", {name: value}, offset=index) for index, (name, value) in enumerate(whole.items())]
    assert one(*parts) == one(Entry(b"kickq:job:1", "hash", whole))


def test_a_job_without_list_entry_has_no_position_and_one_with_two_the_first() -> None:
    assert one(record()).position is None
    assert one(record(), Entry(b"kickq:queue:mail", "list", [b"9", b"1", b"1"], offset=500)).position == 501


# Keys


def test_keys_of_others_are_left_alone() -> None:
    for key in (b"kickq2:job:1", b"kickqjob", b"other:scheduled", b"kickq"):
        assert list(FAMILY.facts(Entry(key, "hash", {b"id": b"1"}), "kickq")) == []


@pytest.mark.parametrize(
    ("key", "redis_type", "role", "owner"),
    [
        (b"kickq:queue:", "list", "queue", ""),
        (b"kickq:queue:kickq:job:1", "list", "queue", "kickq:job:1"),
        (b"kickq:queue:state:new\n\xff", "list", "queue", "state:new\n\udcff"),
        (b"kickq:state:paused", "set", "state", "paused"),
    ],
)
def test_a_queue_may_have_any_name(key: bytes, redis_type: str, role: str, owner: str) -> None:
    [fact] = FAMILY.facts(Entry(key, redis_type, [b"a:\xff"]), "kickq")
    assert (fact.role, fact.queue or fact.label or "", fact.job_id) == (role, owner, "a:\udcff")


@pytest.mark.parametrize(
    ("key", "redis_type", "role"),
    [
        (b"kickq:job:5", "string", "record"),
        (b"kickq:lock", "string", NAMELESS),
        (b"kickq:job:", "hash", NAMELESS),
        (b"kickq:id", "list", "ids"),
        (b"kickq:queue:x", "zset", "queue"),
        (b"kickq:ferryman:staged:x", "zset", "staged"),
    ],
)
def test_a_key_of_ours_that_makes_no_sense_is_odd(key: bytes, redis_type: str, role: str) -> None:
    value: Any = {"string": b"", "list": [], "hash": {}, "zset": []}[redis_type]
    [fact] = FAMILY.facts(Entry(key, redis_type, value), "kickq")
    assert (fact.kind, fact.role, fact.job_id) == (FactKind.ODD, role, None)


@pytest.mark.parametrize(
    ("key", "redis_type", "prefixes"),
    [
        (b"acme:prod v2:time-index", "zset", ["acme:prod v2"]),
        (b"kickq:scheduled-purge", "zset", ["kickq"]),
        (b"kickq:state:success", "set", ["kickq"]),
        (b"kickq:state:success", "zset", []),
        (b"kickq:state:active", "set", []),
        (b"kickq:job:1", "hash", []),
        (b"kickq:queue:mail", "list", []),
    ],
)
def test_a_keyspace_is_recognised_by_the_keys_that_only_kickq_has(key: bytes, redis_type: str, prefixes: list[str]) -> None:
    assert list(FAMILY.prefixes(key, redis_type)) == prefixes


@each_capture
def test_every_capture_is_recognised(case: Capture) -> None:
    prefixes = {prefix for entry in case.entries() for prefix in FAMILY.prefixes(entry.key, entry.redis_type)}
    assert prefixes == {case.prefix}


def test_a_document_names_its_members_once_and_the_last_of_two_counts() -> None:
    job = one(record(raw=b'{"id":"1","name":"a","data":1,"data":2}'))
    assert job.payload == b"2"
    assert job.extra["kickq"]["text"] == b'{"id":"1","name":"a","data":1,"data":2}'
    assert document()["id"] == "1"
