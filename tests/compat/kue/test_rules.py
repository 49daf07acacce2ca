"""The rules against keyspaces that real crashes damaged, against healthy ones, and each against the smallest case of its own."""

from __future__ import annotations

import pytest
from ferryman.compat.kue import FAMILY
from ferryman.schema.fact import Entry, join
from ferryman.schema.family import KeyFamily, Keyspace
from ferryman.schema.rule import Finding, Severity
from ferryman.testing.keyspaces import read_keyspace
from hypothesis import event, given
from hypothesis import strategies as st

from ...support.captures import Capture, capture, captures
from .strategies import hashes, numbers

NOW = 1_800_000_000_000
CREATED = NOW - 60_000

each_healthy_capture = pytest.mark.parametrize(
    "case", [case for case in captures("kue") if case.name not in ("crashed", "upgraded")], ids=str
)


def audit(case: Capture) -> list[Finding]:
    return read_keyspace(FAMILY, case.entries(), case.prefix, case.captured_at_ms).findings()


@each_healthy_capture
def test_a_healthy_keyspace_has_no_error(case: Capture) -> None:
    assert [finding for finding in audit(case) if finding.severity is Severity.ERROR] == []


@each_healthy_capture
def test_all_that_is_said_of_a_healthy_keyspace_is_what_keys_alone_cant_tell(case: Capture) -> None:
    """Jobs that live workers held, tokens left by removals, and one backoff that is a function."""
    held = {job_id for job_id, said in case.expected["jobs_by_id"].items() if said["state"] == "active" and not said["ttl"]}
    found = {(finding.rule, finding.job_id) for finding in audit(case)}
    expected = {("KUE-9", None), *(("KUE-15", job_id) for job_id in held)}
    if case.name == "healthy":
        expected.add(("KUE-19", "119"))
    assert found == expected


@pytest.mark.parametrize("name", ["crashed", "upgraded"])
def test_every_known_fault_is_found_and_nothing_else_is_invented(name: str) -> None:
    case = capture("kue", name)
    faults = {(fault["rule"], fault["id"]) for fault in case.expected["damage"]}
    found = {(finding.rule, finding.job_id) for finding in audit(case)}
    if name == "upgraded":
        # Beside the damage: jobs that live workers held, and tokens left by a removed job and a restart.
        held = {job_id for job_id, said in case.expected["jobs_by_id"].items() if said["state"] == "active" and not said["ttl"]}
        faults |= {("KUE-9", None), *(("KUE-15", job_id) for job_id in held)}
    assert found == faults


def test_findings_about_tokens_name_their_queue() -> None:
    found = {(finding.rule, finding.queue) for finding in audit(capture("kue", "crashed")) if finding.job_id is None}
    # The type ghost lost its waiting job by removal, which leaves the token; it breaks no rule.
    surplus = {("KUE-9", queue) for queue in ("poison", "srch", "idle-type", "ghost")}
    assert found == {("KUE-8", "pop-token"), *surplus}


def test_only_what_could_not_be_run_right_elsewhere_is_refused() -> None:
    case = capture("kue", "crashed")
    seen = read_keyspace(FAMILY, case.entries(), case.prefix, case.captured_at_ms)
    refused = {
        subject.job_id: {finding.rule for finding in FAMILY.refusals(subject, seen.keyspace)}
        for subject in seen.subjects.values()
        if subject.record is not None
    }
    assert {job_id: rules for job_id, rules in refused.items() if rules} == {
        "11": {"KUE-3", "KUE-18"},
        "12": {"KUE-3"},
        "19": {"KUE-17"},
        "27": {"KUE-2"},
        "32": {"KUE-11"},
        "33": {"KUE-18"},
        "36": {"KUE-2"},
    }


def test_rules_are_numbered_from_1_to_34() -> None:
    numbered = [int(rule.id.removeprefix("KUE-")) for rule in FAMILY.rules]
    assert sorted(set(numbered)) == list(range(1, 35))
    assert numbered == sorted(numbered)
    assert all((rule.subject is None) != (rule.keyspace is None) for rule in FAMILY.rules)


# The smallest case of each rule: one sound job, and one thing wrong

VALID = {
    b"type": b"mail",
    b"data": b"{}",
    b"priority": b"0",
    b"max_attempts": b"1",
    b"created_at": b"%d" % CREATED,
    b"promote_at": b"%d" % CREATED,
    b"updated_at": b"%d" % CREATED,
    b"state": b"inactive",
}


def keyspace(
    changes: dict[bytes, bytes | None] | None = None,
    *,
    member: bytes = b"01|1",
    missing: tuple[bytes, ...] = (),
    more: tuple[Entry, ...] = (),
    score: float = 0.0,
) -> list[Entry]:
    """One waiting job in a keyspace of its own, with changed (None: removed) fields, without ``missing`` keys, with ``more``."""
    record = {name: value for name, value in (VALID | (changes or {})).items() if value is not None}
    word = record.get(b"state", b"inactive")
    queue = record.get(b"type") or b"mail"
    entries = [
        Entry(b"q:ids", "string", b"1"),
        Entry(b"q:job:types", "set", [b"mail"]),
        Entry(b"q:job:1", "hash", record),
        Entry(b"q:jobs", "zset", [(member, 0.0)]),
        Entry(b"q:jobs:" + word, "zset", [(member, score)]),
        Entry(b"q:jobs:" + queue + b":" + word, "zset", [(member, 0.0)]),
    ]
    if word == b"inactive":
        entries.append(Entry(b"q:mail:jobs", "list", [b"1"]))
    return [entry for entry in entries if entry.key not in missing] + list(more)


def found(entries: list[Entry]) -> dict[str, Severity]:
    """Rule -> severity of everything that is said of the entries."""
    return {finding.rule: finding.severity for finding in read_keyspace(FAMILY, entries, "q", NOW).findings()}


def test_the_valid_job_breaks_no_rule() -> None:
    assert found(keyspace()) == {}


ACTIVE: dict[bytes, bytes | None] = {b"state": b"active", b"started_at": b"%d" % CREATED, b"workerId": b"kue:h:1:mail:1"}
LEASED: dict[bytes, bytes | None] = {**ACTIVE, b"ttl": b"5000"}
DELAYED: dict[bytes, bytes | None] = {b"state": b"delayed", b"promote_at": b"%d" % (NOW + 5000), b"delay": b"65000"}
COMPLETE: dict[bytes, bytes | None] = {b"state": b"complete", b"progress": b"100", b"attempts": b"1"}
FAILED: dict[bytes, bytes | None] = {b"state": b"failed", b"attempts": b"1", b"error": b"E", b"failed_at": b"%d" % CREATED}
PROMOTED = float(NOW + 5000)
LOST = {"KUE-5": "error", "KUE-32": "error"}


@pytest.mark.parametrize(
    ("entries", "rules"),
    [
        (keyspace(missing=(b"q:job:1",)), {"KUE-1": "error"}),
        (keyspace({b"type": None}), {"KUE-2": "error"}),
        (keyspace({b"type": b""}), {"KUE-2": "error"}),
        (keyspace({b"state": b"paused"}), {"KUE-3": "warning"}),
        (keyspace(missing=(b"q:jobs",)), {"KUE-4": "error"}),
        (keyspace(missing=(b"q:jobs:inactive",)), {"KUE-5": "warning"}),
        (keyspace(DELAYED, missing=(b"q:jobs:delayed",)), {"KUE-5": "error"}),
        (keyspace(LEASED, missing=(b"q:jobs:active",)), {"KUE-5": "error"}),
        (keyspace(missing=(b"q:jobs:mail:inactive", b"q:mail:jobs")), {"KUE-6": "error"}),
        (keyspace(COMPLETE, missing=(b"q:jobs:mail:complete",)), {"KUE-6": "warning"}),
        (keyspace(more=(Entry(b"q:jobs:failed", "zset", [(b"01|1", 0.0)]),)), {"KUE-7": "warning"}),
        (keyspace(COMPLETE, more=(Entry(b"q:jobs:delayed", "zset", [(b"01|1", 1.0)]),)), {"KUE-7": "error"}),
        (keyspace(more=(Entry(b"q:jobs:b:inactive", "zset", [(b"01|1", 0.0)]),)), {"KUE-7": "error", "KUE-8": "error"}),
        (keyspace(missing=(b"q:mail:jobs",)), {"KUE-8": "error"}),
        (keyspace(more=(Entry(b"q:mail:jobs", "list", [b"1"]),)), {"KUE-9": "info"}),
        (keyspace(missing=(b"q:mail:jobs",), more=(Entry(b"q:mail:jobs", "list", [b"2"]),)), {"KUE-10": "info"}),
        (keyspace({b"priority": b"urgent"}), {"KUE-11": "error"}),
        (keyspace({b"priority": None}), {"KUE-11": "error"}),
        (keyspace({b"priority": b"5"}), {"KUE-12": "warning"}),
        (keyspace(DELAYED, score=PROMOTED), {}),
        (keyspace(DELAYED, score=PROMOTED + 1), {"KUE-13": "error"}),
        (keyspace({**DELAYED, b"promote_at": None}, score=-5.0), {"KUE-13": "error"}),
        (keyspace({**DELAYED, b"promote_at": None, b"delay": None}, score=0.0), {"KUE-32": "error"}),
        (keyspace({**DELAYED, b"promote_at": b"soon", b"delay": b"1h"}, missing=(b"q:jobs:delayed",)), LOST),
        (keyspace({b"ttl": b"soon"}), {"KUE-21": "error"}),
        (keyspace({b"attempts": b""}), {"KUE-21": "error"}),
        (keyspace({**DELAYED, b"promote_at": b"%d" % (NOW - 4000)}, score=NOW - 4000.0), {"KUE-14": "warning"}),
        (keyspace({**DELAYED, b"promote_at": b"%d" % (NOW - 2000)}, score=NOW - 2000.0), {}),
        (keyspace(ACTIVE), {"KUE-15": "warning"}),
        (keyspace(LEASED, score=NOW + 1.0), {}),
        (keyspace(LEASED, score=NOW - 4000.0), {"KUE-16": "error"}),
        (keyspace({**ACTIVE, b"progress": b"100", b"duration": b"7"}), {"KUE-15": "warning", "KUE-17": "error"}),
        (keyspace({b"data": b"undefined"}), {"KUE-18": "error"}),
        (keyspace({b"data": None}), {"KUE-18": "error"}),
        (keyspace({**COMPLETE, b"data": b"undefined"}), {"KUE-18": "warning"}),
        (keyspace({b"backoff": b"exponential"}), {"KUE-19": "error"}),
        (keyspace({b"backoff": b"(n) => n * 1000"}), {"KUE-19": "warning"}),
        (keyspace({b"backoff": b'{"type":"fixed","delay":5}'}), {}),
        (keyspace({b"progress_data": b"undefined"}), {"KUE-20": "error"}),
        (keyspace({**COMPLETE, b"result": b"undefined"}), {"KUE-20": "warning"}),
        (keyspace({b"max_attempts": None}), {"KUE-21": "warning"}),
        (keyspace({b"max_attempts": b"0"}), {"KUE-21": "warning"}),
        (keyspace({b"attempts": b"2"}), {"KUE-21": "info"}),
        (keyspace({**FAILED, b"max_attempts": b"2"}), {"KUE-22": "error"}),
        (keyspace({**COMPLETE, b"attempts": None}), {"KUE-23": "warning"}),
        (keyspace({**COMPLETE, b"removeOnComplete": b"false"}), {"KUE-23": "warning"}),
        (keyspace(more=(Entry(b"q:job:9:log", "list", [b"x"]),)), {"KUE-24": "warning"}),
        (keyspace(missing=(b"q:job:types",)), {"KUE-25": "warning"}),
        (keyspace(missing=(b"q:ids",)), {"KUE-26": "error"}),
        (
            keyspace(member=b"1", more=(Entry(b"q:jobs:b:paused", "zset", [(b"01|1", 0.0)]),)),
            {"KUE-7": "warning", "KUE-27": "error"},
        ),
        (keyspace(member=b"05|1"), {"KUE-27": "error"}),
        (keyspace(more=(Entry(b"q:search:word:RST", "zset", [(b"9", 1.0)]),)), {"KUE-28": "warning"}),
        (keyspace(more=(Entry(b"q:settings", "list", [b"x"]),)), {"KUE-29": "error"}),
        (keyspace(more=(Entry(b"q:unique:x", "string", b"x"),)), {"KUE-29": "warning"}),
        (keyspace(more=(Entry(b"q:unique:jobs", "hash", {b"a": b"b"}),)), {"KUE-29": "warning"}),
        (keyspace(missing=(b"q:mail:jobs",), more=(Entry(b"q:mail:jobs", "hash", {}),)), {"KUE-8": "error", "KUE-29": "error"}),
        (keyspace(more=(Entry(b"q:jobs:failed", "zset", [(b"x", 0.0)]),)), {"KUE-29": "warning"}),
        (keyspace(missing=(b"q:ids",), more=(Entry(b"q:ids", "string", b"1", ttl_ms=9),)), {"KUE-29": "error"}),
        (keyspace(more=(Entry(b"q:job:1:log", "list", [b"x"], ttl_ms=9),)), {"KUE-29": "error"}),
        (keyspace({b"updated_at": b"%d" % (CREATED - 1)}), {"KUE-30": "info"}),
        (keyspace({**FAILED, b"error": None}), {"KUE-30": "info"}),
        (keyspace({**COMPLETE, b"progress": None}), {"KUE-30": "info"}),
        (keyspace(more=(Entry(b"promotion:lock", "string", b"x"),)), {"KUE-31": "error"}),
        (keyspace(more=(Entry(b"promotion:lock", "string", b"x", ttl_ms=90_000),)), {"KUE-31": "warning"}),
        (keyspace(more=(Entry(b"activeJobsTTL:lock", "string", b"x", ttl_ms=1990),)), {}),
    ],
)
def test_one_thing_wrong_breaks_exactly_its_rules(entries: list[Entry], rules: dict[str, str]) -> None:
    assert found(entries) == rules


@given(st.dictionaries(st.sampled_from(sorted(VALID)), st.one_of(numbers, st.just(b"active")), max_size=3), st.integers(0, 2**62))
def test_findings_are_one_printable_line_each(changes: dict[bytes, bytes], now_ms: int) -> None:
    seen = read_keyspace(FAMILY, keyspace({**changes}), "q", now_ms)
    for finding in seen.findings():
        assert finding.detail.isprintable()
        assert len(finding.detail) < 1000


def test_a_keyspace_of_kue_0_6_is_measured_by_its_own_rules() -> None:
    """No max_attempts, plain members, a delayed index sorted by priority: all sound in its time."""
    entries = keyspace({**DELAYED, b"max_attempts": None, b"promote_at": None}, member=b"1")
    assert found(entries) == {}
    assert found(keyspace({**DELAYED, b"max_attempts": None, b"promote_at": None}, member=b"1", score=3.0)) == {
        "KUE-13": "warning"
    }


def test_many_odd_keys_are_counted_and_the_first_are_named() -> None:
    entries = keyspace(more=tuple(Entry(b"q:unique:%03d" % number, "string", b"x") for number in range(50)))
    findings = read_keyspace(FAMILY, entries, "q", NOW).findings()
    assert len(findings) == 21
    assert "30 more" in findings[-1].detail


@given(hashes())
def test_a_job_is_refused_for_what_the_rules_that_refuse_find(record: dict[bytes, bytes]) -> None:
    subject = join(list(FAMILY.facts(Entry(b"q:job:7", "hash", record), "q")))
    keyspace = Keyspace(FAMILY, "q", NOW)
    expected = list(KeyFamily.refusals(FAMILY, subject, keyspace))
    event(f"refused: {bool(expected)}")
    assert list(FAMILY.refusals(subject, keyspace)) == expected
