"""The rules against keyspaces that real crashes damaged, against healthy ones, and each against the smallest case of its own."""

from __future__ import annotations

import pytest
from ferryman.compat.pjq import FAMILY
from ferryman.schema.fact import Entry
from ferryman.schema.rule import Finding, Severity
from ferryman.testing.keyspaces import read_keyspace

from ...support.captures import Capture, capture, captures

NOW_MS = 1_800_000_000_000
NOW = NOW_MS / 1000

each_capture = pytest.mark.parametrize("case", captures("pjq"), ids=str)


def audit(case: Capture, later_ms: int = 0) -> list[Finding]:
    return read_keyspace(FAMILY, case.entries(), case.prefix, case.captured_at_ms + later_ms).findings()


def named(case: Capture, finding: Finding) -> tuple[str, str]:
    """Rule and id, which is a job's, or that of the worker or key of which the finding is."""
    ids = {fault["id"] for fault in case.expected["damage"] if fault["queue"] == finding.queue}
    about = finding.job_id or next((name for name in ids if name == finding.key or f" {name}:" in finding.detail), "?")
    return finding.rule, about


@each_capture
def test_every_known_fault_is_found_and_nothing_else_is_invented(case: Capture) -> None:
    faults = {(fault["rule"], fault["id"]) for fault in case.expected["damage"] if "visible_after_s" not in fault}
    assert {named(case, finding) for finding in audit(case)} == faults


@each_capture
def test_every_finding_names_the_queue_of_the_fault(case: Capture) -> None:
    faults = {(fault["rule"], fault["id"]): fault["queue"] for fault in case.expected["damage"]}
    for finding in audit(case):
        assert finding.queue == faults[named(case, finding)]


@pytest.mark.parametrize("name", ["healthy", "as-released", "custom-namespace", "older-version", "older-version-py1"])
def test_a_healthy_keyspace_has_no_error(name: str) -> None:
    assert [finding for finding in audit(capture("pjq", name)) if finding.severity is Severity.ERROR] == []


def test_nine_seconds_later_jobs_whose_workers_were_never_heard_again_show() -> None:
    case = capture("pjq", "as-released")
    faults = {(fault["rule"], fault["id"]) for fault in case.expected["damage"]}
    later = {(finding.rule, finding.job_id) for finding in audit(case, later_ms=9000)}
    assert faults <= later
    # Those whose workers are still at it look the same.
    assert {rule for rule, _ in later} == {"PJQ-10", "PJQ-25"}


def test_only_what_could_not_be_run_right_elsewhere_is_refused() -> None:
    case = capture("pjq", "crashed")
    seen = read_keyspace(FAMILY, case.entries(), case.prefix, case.captured_at_ms)
    refused = {
        subject.job_id: {finding.rule for finding in FAMILY.refusals(subject, seen.keyspace)}
        for subject in seen.subjects.values()
    }
    assert {job_id[:8]: rules for job_id, rules in refused.items() if rules} == {
        "5c5e9e25": {"PJQ-1"},
        "e5fe60ca": {"PJQ-2"},
        "d9fd7987": {"PJQ-4"},
        "fb659c68": {"PJQ-3"},
        "8d2b0c1b": {"PJQ-3"},
        "0cbcc0c7": {"PJQ-17"},
        "248a08e6": {"PJQ-17"},
        "a8d3ce61": {"PJQ-17"},
    }


def test_rules_are_numbered_from_1_to_28() -> None:
    numbered = [int(rule.id.removeprefix("PJQ-")) for rule in FAMILY.rules]
    assert sorted(set(numbered)) == list(range(1, 29))
    assert numbered == sorted(numbered)
    assert all((rule.subject is None) != (rule.keyspace is None) for rule in FAMILY.rules)


# The smallest case of each rule: one sound job, and one thing wrong

ID = b"5c5e9e25-3cf7-4527-af76-2268e8782681"
JSON = b'{"uuid":"%b","queue_name":"q","command":"c"}' % ID
AT = b"2026-11-21T12:22:47.936220Z"
HASHES: dict[str, dict[bytes, bytes]] = {
    "queued": {b"json": JSON},
    "dispatched": {b"json": JSON, b"dispatched_at": AT},
    "processing": {b"json": JSON, b"dispatched_at": AT, b"started_at": AT, b"worker_uuid": b"w"},
    "finished": {b"json": JSON, b"dispatched_at": AT, b"started_at": AT, b"worker_uuid": b"w", b"finished_at": b"1799999990"},
    "leased_queue": {b"json": JSON, b"leased_at": b"1799999990000"},
}


def zset(name: bytes, score: float, member: bytes = ID) -> Entry:
    return Entry(name + b":q", "zset", [(member, score)])


def job(
    role: str = "queued",
    changes: dict[bytes, bytes | None] | None = None,
    *,
    missing: tuple[bytes, ...] = (),
    more: tuple[Entry, ...] = (),
    score: float = NOW - 2,
) -> list[Entry]:
    """One job in a keyspace of its own, with changed (None: removed) fields, without ``missing`` keys, with ``more``."""
    record = {name: value for name, value in (HASHES[role] | (changes or {})).items() if value is not None}
    entries = [Entry(ID, "hash", record)]
    match role:
        case "queued":
            entries.append(Entry(b"jobs_queued:q", "list", [ID]))
        case "dispatched":
            entries.append(zset(b"jobs_dispatched", score))
        case "processing":
            entries += [zset(b"jobs_processing", score), zset(b"jobs_progress", 0.5)]
            entries += [Entry(b"workers_busy:q", "set", [b"w"]), zset(b"workers_last_seen", NOW - 2, b"w")]
        case "finished":
            entries.append(zset(b"jobs_finished", 1799999990.0))
        case "leased_queue":
            entries += [zset(b"leased_queue", NOW_MS - 500.0), zset(b"progress_queue", 0.0)]
    return [entry for entry in entries if entry.key not in missing] + list(more)


def found(entries: list[Entry]) -> dict[str, str]:
    """Rule -> severity of everything that is said of the entries."""
    return {finding.rule: str(finding.severity) for finding in read_keyspace(FAMILY, entries, "", NOW_MS).findings()}


@pytest.mark.parametrize("role", HASHES)
def test_a_valid_job_breaks_no_rule(role: str) -> None:
    assert found(job(role)) == {}


IDLE = Entry(b"workers_idle:q", "set", [b"i"])
ANOTHER_WAITS = (
    Entry(b"a", "hash", {b"json": b'{"uuid":"a","queue_name":"q"}'}),
    Entry(b"jobs_queued:q", "list", [b"a"]),
)
SEEN_IDLE = Entry(b"workers_last_seen:q", "zset", [(b"i", NOW - 2)])


@pytest.mark.parametrize(
    ("entries", "rules"),
    [
        (job(missing=(ID,), more=(Entry(ID, "string", b"x"),)), {"PJQ-1": "error"}),
        (job(more=(Entry(b"workers_idle:q", "zset", [(b"w", 1.0)]),)), {"PJQ-1": "error"}),
        (job(more=(Entry(b"jobs_finished:q", "stream", None),)), {"PJQ-1": "error"}),
        (job(more=(Entry(b"_ferryman.jobs_queued:q", "zset", [(ID, 1.0)]),)), {"PJQ-1": "error"}),
        (job(missing=(ID,)), {"PJQ-2": "error"}),
        (job(changes={b"json": None, b"dispatched_at": AT}), {"PJQ-2": "error"}),
        (job(changes={b"json": b'{"uuid"'}), {"PJQ-3": "error"}),
        (job("dispatched", {b"json": b"[]"}), {"PJQ-3": "error"}),
        (job("finished", {b"json": b"\xff"}), {"PJQ-3": "warning"}),
        (job("dispatched", missing=(ID,)), {"PJQ-4": "error"}),
        (job("processing", missing=(ID,)), {"PJQ-4": "error"}),
        (job("finished", missing=(ID,)), {"PJQ-4": "error"}),
        (job(changes={b"json": b'{"uuid":"x","queue_name":"q"}'}), {"PJQ-5": "error"}),
        (job(changes={b"json": b'{"uuid":"%b","queue_name":"r"}' % ID}), {"PJQ-5": "error"}),
        (job(changes={b"json": b"{}"}), {"PJQ-5": "error"}),
        (job(missing=(b"jobs_queued:q",), more=(Entry(b"jobs_queued:q", "list", [ID, ID]),)), {"PJQ-6": "error"}),
        (job("processing", more=(zset(b"jobs_dispatched", NOW - 1),)), {"PJQ-7": "error"}),
        (job("processing", {b"finished_at": b"1799999990"}, more=(zset(b"jobs_finished", 1799999990.0),)), {"PJQ-7": "warning"}),
        (job("processing", missing=(b"jobs_progress:q",)), {"PJQ-8": "warning"}),
        (job(more=(zset(b"jobs_progress", 0.1),)), {"PJQ-8": "warning"}),
        (job("processing", missing=(b"jobs_progress:q",), more=(zset(b"jobs_progress", 1.5),)), {"PJQ-9": "warning"}),
        (job("dispatched", score=NOW - 9.1), {"PJQ-10": "warning"}),
        (job("dispatched", score=NOW - 8.9), {}),
        (job("processing", missing=(b"workers_busy:q", b"workers_last_seen:q")), {"PJQ-11": "error"}),
        (job("finished", missing=(b"jobs_finished:q",)), {"PJQ-12": "error"}),
        (job("finished", {b"finished_at": AT}, missing=(b"jobs_finished:q",)), {"PJQ-12": "error"}),
        (job("processing", more=(Entry(b"workers_idle:q", "set", [b"w"]),)), {"PJQ-13": "error"}),
        (job("processing", more=(Entry(b"workers_idle:q", "set", [b"w"]), *ANOTHER_WAITS)), {"PJQ-13": "error"}),
        (job("processing", missing=(b"workers_last_seen:q",)), {"PJQ-14": "error"}),
        ([IDLE], {"PJQ-14": "error"}),
        ([SEEN_IDLE], {"PJQ-15": "info"}),
        ([SEEN_IDLE, Entry(b"workers_idle:q", "zset", [(b"i", 1.0)])], {"PJQ-1": "error"}),
        ([IDLE, zset(b"workers_last_seen", NOW + 3.1, b"i")], {"PJQ-16": "warning"}),
        ([IDLE, zset(b"workers_last_seen", NOW + 2.9, b"i")], {}),
        (job(missing=(b"jobs_queued:q",)), {"PJQ-17": "error"}),
        (job(changes={b"json": None, b"dispatched_at": AT}, missing=(b"jobs_queued:q",)), {"PJQ-17": "error"}),
        (job("leased_queue", missing=(b"leased_queue:q", b"progress_queue:q")), {"PJQ-17": "warning"}),
        (job("dispatched", {b"dispatched_at": None}), {"PJQ-18": "warning"}),
        (job("processing", {b"worker_uuid": None}), {"PJQ-18": "warning"}),
        (job("finished", {b"worker_uuid": None}), {"PJQ-18": "warning"}),
        (job("finished", {b"dispatched_at": None}), {"PJQ-19": "error"}),
        (job("dispatched", score=float(NOW_MS)), {"PJQ-20": "error"}),
        (job("finished", {b"finished_at": b"1799999991"}), {"PJQ-20": "warning"}),
        (job("processing", score=5.0), {"PJQ-20": "warning"}),
        ([IDLE, zset(b"workers_last_seen", float(NOW_MS), b"i")], {"PJQ-20": "error"}),
        ([Entry(b"workers_busy:q", "set", [b"i"]), SEEN_IDLE], {"PJQ-21": "info"}),
        (job(missing=(ID,), more=(Entry(ID, "hash", HASHES["queued"], ttl_ms=9),)), {"PJQ-22": "error"}),
        (job(missing=(b"jobs_queued:q",), more=(Entry(b"jobs_queued:q", "list", [ID], ttl_ms=9),)), {"PJQ-22": "error"}),
        (job(more=(zset(b"idle_queue", float(NOW_MS), b"i"),)), {"PJQ-23": "error"}),
        (job(more=(IDLE, SEEN_IDLE)), {"PJQ-24": "info"}),
        (
            job(
                "processing",
                score=NOW - 10,
                missing=(b"workers_last_seen:q",),
                more=(zset(b"workers_last_seen", NOW - 10, b"w"),),
            ),
            {"PJQ-25": "warning"},
        ),
        (job("processing", score=NOW - 10), {}),
        (job("leased_queue", missing=(b"progress_queue:q",)), {"PJQ-26": "warning"}),
        (job("leased_queue", missing=(b"leased_queue:q",)), {"PJQ-17": "warning", "PJQ-26": "warning"}),
        (
            job(changes={b"finished_at": b"1799999990", b"dispatched_at": AT}),
            {"PJQ-12": "error", "PJQ-18": "error"},
        ),
    ],
)
def test_one_thing_wrong_breaks_exactly_its_rules(entries: list[Entry], rules: dict[str, str]) -> None:
    assert found(entries) == rules


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"5", b"5"),
        (b"1.5", b"1.5"),
        (b"None", b"null"),
        (b"null", b"null"),
        (b"True", b"true"),
        (b"['a']", b'["a"]'),
        ("ü".encode(), b'"\\u00fc"'),
        (b"", b'""'),
    ],
)
def test_an_id_that_is_no_text_is_compared_as_the_programs_write_it(key: bytes, text: bytes) -> None:
    entries = [Entry(key, "hash", {b"json": b'{"uuid":%b,"queue_name":"q"}' % text}), Entry(b"jobs_queued:q", "list", [key])]
    assert found(entries) == {}


def test_a_job_without_uuid_of_the_first_program_has_the_key_undefined() -> None:
    entries = [Entry(b"undefined", "hash", {b"json": b'{"a":1}'}), Entry(b"job_queue:undefined", "list", [b"undefined"])]
    assert found(entries) == {}


def test_what_is_wrong_with_many_workers_is_one_finding() -> None:
    workers = [b"%03d" % number for number in range(50)]
    [finding] = read_keyspace(FAMILY, [Entry(b"workers_idle:q", "set", workers)], "", NOW_MS).findings()
    assert finding.detail.startswith("50 workers 000, 001, 002, 003, 004 …")
    assert (finding.queue, finding.key) == ("q", "workers_idle:q")
