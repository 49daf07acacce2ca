"""The rules against keyspaces that real crashes damaged, against healthy ones, and each against the smallest case of its own."""

from __future__ import annotations

import pytest
from ferryman.compat.qless import FAMILY
from ferryman.schema.fact import Entry
from ferryman.schema.rule import Finding, Severity
from ferryman.testing.keyspaces import read_keyspace
from hypothesis import given
from hypothesis import strategies as st

from ...support.captures import Capture, capture, captures
from .strategies import numbers

NOW = 1_800_000_000_000
NOW_S = NOW / 1000

BROKEN = ("crashed", "crashed-reqless", "odd")
each_healthy_capture = pytest.mark.parametrize("case", [case for case in captures("qless") if case.name not in BROKEN], ids=str)


def audit(case: Capture) -> list[Finding]:
    return read_keyspace(FAMILY, case.entries(), case.prefix, case.captured_at_ms).findings()


def pairs(findings: list[Finding]) -> set[tuple[str, str]]:
    """Rule, and what it is about: a job or another name; else the queue or the key."""
    return {
        (finding.rule, finding.queue or finding.key if finding.job_id is None else finding.job_id)
        for finding in findings
        if finding.rule != "QLESS-RECUR"
    }


def expected_findings(case: Capture) -> set[tuple[str, str]]:
    """What the capture's own audit found."""
    return {(each["rule"], each["id"]) for name in ("damage", "audit_notes") for each in case.expected.get(name, ())}


@each_healthy_capture
def test_a_healthy_keyspace_has_no_error(case: Capture) -> None:
    assert [finding for finding in audit(case) if finding.severity is Severity.ERROR] == []


LEFT_BEHIND = {
    # What the software of the first weeks left as a matter of course, and locks of workers that nobody polled for since.
    "seed-layout": {
        ("QLESS-9", "486cb93957aaa7a57d06b5d8ca86c953"),
        ("QLESS-10", "486cb93957aaa7a57d06b5d8ca86c953"),
        ("QLESS-12", "8f8adebdc9ca26de1e9ef173b632586a"),
        ("QLESS-12", "bf159ec72c6a94805647853c631e7158"),
        ("QLESS-30", "ql:q:test1"),
    },
    "first-core": {
        ("QLESS-9", "completed-then-put"),
        ("QLESS-18", "completed-then-put"),
        ("QLESS-11", "heartbeated"),
        ("QLESS-12", "lock-expired"),
        ("QLESS-30", "ql:q:example"),
    },
    "lower-first": {("QLESS-12", "rec-1")},
    "odd": {("QLESS-4", "delay-huge")},
    # A tag that was given twice, and a tracked job that was cancelled.
    "older-version": {("QLESS-12", "lock-expired"), ("QLESS-20", "x y"), ("QLESS-28", "gone")},
}


@pytest.mark.parametrize("case", captures("qless"), ids=str)
def test_every_known_fault_is_found_and_nothing_else_is_invented(case: Capture) -> None:
    assert pairs(audit(case)) == expected_findings(case) | LEFT_BEHIND.get(case.name, set())


@pytest.mark.parametrize("case", captures("qless"), ids=str)
def test_every_recurring_job_is_named_as_what_stays(case: Capture) -> None:
    named = {finding.job_id for finding in audit(case) if finding.rule == "QLESS-RECUR"}
    assert named == set(case.expected.get("recurring_by_id") or {})


def test_only_what_could_not_be_run_right_elsewhere_is_refused() -> None:
    crashed = {"sched-evicted", "inf-priority", "nan-priority", "fractional-retries"}
    cases = [("crashed", crashed), ("crashed-reqless", set()), ("odd", {"delay-huge", "tags-object"}), ("healthy", set())]
    for name, refused in cases:
        case = capture("qless", name)
        seen = read_keyspace(FAMILY, case.entries(), case.prefix, case.captured_at_ms)
        found = {
            subject.job_id
            for subject in seen.subjects.values()
            if subject.record is not None and list(FAMILY.refusals(subject, seen.keyspace))
        }
        assert found == refused


def test_rules_are_numbered_from_1_to_38() -> None:
    numbered = [int(rule.id.removeprefix("QLESS-")) for rule in FAMILY.rules if rule.id != "QLESS-RECUR"]
    assert sorted(set(numbered)) == list(range(1, 39))
    assert numbered == sorted(numbered)
    assert all((rule.subject is None) != (rule.keyspace is None) for rule in FAMILY.rules)


# The smallest case of each rule: one sound job, and one thing wrong

PUT = 1_799_999_000
VALID = {
    b"jid": b"1",
    b"klass": b"K",
    b"data": b"{}",
    b"priority": b"0",
    b"tags": b'["t"]',
    b"state": b"waiting",
    b"worker": b"",
    b"expires": b"0",
    b"queue": b"q",
    b"retries": b"5",
    b"remaining": b"5",
    b"time": b"%d.0" % PUT,
}
SCORE = -PUT / 1e10
UNTIL = NOW_S + 50


def zset(key: bytes, score: float = 0.0, member: bytes = b"1") -> Entry:
    return Entry(b"ql:" + key, "zset", [(member, score)])


def keyspace(changes: dict[bytes, bytes | None] | None = None, *more: Entry, without: tuple[bytes, ...] = ()) -> list[Entry]:
    """One sound job, by default a waiting one, with changed (None: removed) fields, ``more`` keys, and some left out."""
    fields = {name: value for name, value in (VALID | (changes or {})).items() if value is not None}
    entries = {
        entry.key: entry
        for entry in (
            Entry(b"ql:j:1", "hash", fields),
            Entry(b"ql:j:1-history", "list", [b'[%d,"put",{"q":"q"}]' % PUT]),
            zset(b"queues", PUT, b"q"),
            zset(b"t:t", PUT),
            zset(b"tags", 1, b"t"),
            *_entries(fields.get(b"state", b"")),
            *more,
        )
    }
    return [entry for key, entry in entries.items() if key.removeprefix(b"ql:") not in without]


def _entries(word: bytes) -> list[Entry]:
    match word:
        case b"waiting":
            return [zset(b"q:q-work", SCORE)]
        case b"scheduled":
            return [zset(b"q:q-scheduled", UNTIL)]
        case b"running":
            return [zset(b"q:q-locks", UNTIL), zset(b"w:w:jobs", UNTIL), zset(b"workers", PUT, b"w")]
        case b"complete":
            return [zset(b"completed", PUT)]
        case b"failed":
            return [Entry(b"ql:f:g", "list", [b"1"]), Entry(b"ql:failures", "set", [b"g"])]
        case b"depends":
            other = Entry(b"ql:j:2", "hash", VALID | {b"jid": b"2", b"tags": b"{}"})
            history = Entry(b"ql:j:2-history", "list", [b'[1,"put",{"q":"q"}]'])
            edges = [Entry(b"ql:j:1-dependencies", "set", [b"2"]), Entry(b"ql:j:2-dependents", "set", [b"1"])]
            return [zset(b"q:q-depends", PUT), zset(b"q:q-work", SCORE, b"2"), other, history, *edges]
        case b"throttled":
            return [zset(b"q:q-throttled", PUT), zset(b"th:x-pending", PUT)]
    return []


SCHEDULED: dict[bytes, bytes | None] = {b"state": b"scheduled"}
RUNNING: dict[bytes, bytes | None] = {b"state": b"running", b"worker": b"w", b"expires": b"%.17g" % UNTIL}
GRACE = {**RUNNING, b"grace": b"1", b"expires": b"5"}
COMPLETE: dict[bytes, bytes | None] = {b"state": b"complete", b"queue": b"", b"failure": b"{}"}
FAILED: dict[bytes, bytes | None] = {b"state": b"failed", b"expires": b"", b"failure": b'{"group":"g","message":"m","when":5}'}
DEPENDS: dict[bytes, bytes | None] = {b"state": b"depends"}
THROTTLED: dict[bytes, bytes | None] = {b"state": b"throttled", b"throttles": b'["x","ql:q:q"]'}
HELD: dict[bytes, bytes | None] = {**RUNNING, b"throttles": b'["ql:q:q"]'}
SLOT = zset(b"th:ql:q:q-locks", 1)
GONE = (b"j:1", b"j:1-history", b"t:t", b"tags")
TEMPLATE = {b"jid": b"r", b"klass": b"K", b"queue": b"q", b"interval": b"60"}


def found(entries: list[Entry]) -> dict[str, str]:
    """Rule -> severity of everything that is said of the entries."""
    return {finding.rule: str(finding.severity) for finding in read_keyspace(FAMILY, entries, "ql", NOW).findings()}


@pytest.mark.parametrize(
    "entries",
    [
        keyspace(),
        keyspace(SCHEDULED),
        keyspace(RUNNING),
        keyspace(COMPLETE),
        keyspace(FAILED),
        keyspace(DEPENDS),
        keyspace(THROTTLED),
        keyspace(HELD, SLOT),
        keyspace(GRACE, without=(b"w:w:jobs",)),
    ],
)
def test_a_valid_job_in_any_state_breaks_no_rule(entries: list[Entry]) -> None:
    assert found(entries) == {}


@pytest.mark.parametrize(
    ("entries", "rules"),
    [
        (keyspace(without=GONE), {"QLESS-1": "error"}),
        (keyspace({name: None for name in VALID if name != b"state"}, without=(b"t:t", b"tags")), {"QLESS-2": "error"}),
        (keyspace({b"state": b"paused"}), {"QLESS-2": "error"}),
        (keyspace({b"klass": None}), {"QLESS-2": "error"}),
        (keyspace(without=(b"q:q-work",)), {"QLESS-3": "error"}),
        (keyspace(SCHEDULED, without=(b"q:q-scheduled",)), {"QLESS-4": "error"}),
        (keyspace(RUNNING, without=(b"q:q-locks",)), {"QLESS-5": "error"}),
        (keyspace(DEPENDS, without=(b"q:q-depends",)), {"QLESS-6": "error"}),
        (keyspace(DEPENDS, without=(b"j:1-dependencies", b"j:2-dependents")), {"QLESS-6": "error"}),
        (keyspace(FAILED, without=(b"f:g", b"failures")), {"QLESS-7": "error"}),
        (keyspace(FAILED, zset(b"q:q-work", SCORE)), {"QLESS-7": "error", "QLESS-9": "error"}),
        (keyspace(COMPLETE, without=(b"completed",)), {"QLESS-8": "warning"}),
        (
            keyspace(COMPLETE, zset(b"q:q-locks", UNTIL)),
            {"QLESS-8": "error", "QLESS-9": "error", "QLESS-10": "error", "QLESS-11": "warning"},
        ),
        (keyspace(None, zset(b"q:q-locks", UNTIL)), {"QLESS-9": "error", "QLESS-11": "warning"}),
        (
            keyspace(None, zset(b"q:z-work", SCORE), without=(b"q:q-work",)),
            {"QLESS-10": "error", "QLESS-26": "warning"},
        ),
        (keyspace({**RUNNING, b"expires": b"7"}), {"QLESS-11": "warning"}),
        (keyspace({**RUNNING, b"expires": b"1799999999"}, zset(b"q:q-locks", 1799999999.0)), {"QLESS-12": "warning"}),
        (keyspace(GRACE, zset(b"q:q-locks", 1799999999.0), without=(b"w:w:jobs",)), {"QLESS-12": "warning"}),
        (keyspace(RUNNING, without=(b"w:w:jobs",)), {"QLESS-13": "warning"}),
        (keyspace(None, zset(b"w:w:jobs", 1.0), zset(b"workers", PUT, b"w")), {"QLESS-14": "warning"}),
        (keyspace(without=(b"j:1-history",)), {"QLESS-15": "warning"}),
        (keyspace(without=(*GONE[:1], *GONE[2:], b"q:q-work")), {"QLESS-15": "warning"}),
        (keyspace(None, Entry(b"ql:j:1-history", "list", [b'[1,"put",{"q":"q"}]', b"junk"])), {"QLESS-15": "warning"}),
        (keyspace(FAILED, without=(b"failures",)), {"QLESS-16": "warning"}),
        (keyspace(None, Entry(b"ql:failures", "set", [b"g"])), {"QLESS-16": "warning"}),
        (keyspace(None, *_entries(b"failed")), {"QLESS-9": "error", "QLESS-17": "error"}),
        (keyspace(FAILED, Entry(b"ql:f:g", "list", [b"1", b"1"])), {"QLESS-7": "error", "QLESS-17": "error"}),
        (keyspace(None, zset(b"completed", PUT)), {"QLESS-9": "error", "QLESS-18": "error"}),
        (keyspace(COMPLETE, without=GONE), {"QLESS-18": "warning"}),
        (keyspace(without=(b"t:t", b"tags")), {"QLESS-19": "warning"}),
        (keyspace({b"tags": b"{}"}), {"QLESS-19": "warning"}),
        (keyspace(None, zset(b"tags", 2, b"t")), {"QLESS-20": "info"}),
        (keyspace(None, Entry(b"ql:tags", "zset", [(b"gone", 0.0), (b"t", 1.0)])), {"QLESS-20": "info"}),
        (keyspace(DEPENDS, without=(b"j:2-dependents",)), {"QLESS-21": "error"}),
        (keyspace(DEPENDS, without=(b"j:2", b"j:2-history", b"q:q-work")), {"QLESS-21": "error", "QLESS-22": "warning"}),
        (
            keyspace(None, *(entry for entry in _entries(b"depends") if b"depend" in entry.key[-13:] and b":j:" in entry.key)),
            {"QLESS-21": "error", "QLESS-22": "warning"},
        ),
        (
            keyspace(
                DEPENDS,
                Entry(b"ql:j:1-dependencies", "set", [b"1"]),
                Entry(b"ql:j:1-dependents", "set", [b"1"]),
                without=(b"j:2-dependents",),
            ),
            {"QLESS-22": "error"},
        ),
        (keyspace(None, zset(b"q:q-recur", PUT, b"r")), {"QLESS-23": "error"}),
        (keyspace(None, Entry(b"ql:r:r", "hash", TEMPLATE)), {"QLESS-23": "error", "QLESS-RECUR": "info"}),
        (keyspace(None, Entry(b"ql:r:r", "hash", TEMPLATE), zset(b"q:q-recur", PUT, b"r")), {"QLESS-RECUR": "info"}),
        (keyspace({b"priority": b"nan"}), {"QLESS-24": "error"}),
        (keyspace({b"remaining": b"1.5"}), {"QLESS-24": "error"}),
        (keyspace({b"time": b"soon"}), {"QLESS-24": "error"}),
        (keyspace({b"data": b"undefined"}), {"QLESS-25": "error"}),
        (keyspace({b"tags": b'{"a":1}'}), {"QLESS-25": "error"}),
        (keyspace({b"throttles": b"[[]]"}, zset(b"t:t", PUT)), {"QLESS-25": "error"}),
        (keyspace(without=(b"queues",)), {"QLESS-26": "warning"}),
        (keyspace(RUNNING, without=(b"workers",)), {"QLESS-27": "warning"}),
        (keyspace(None, zset(b"tracked", PUT, b"gone")), {"QLESS-28": "warning"}),
        (keyspace(None, Entry(b"ql:s:stats:1:q", "hash", {b"failed": b"-1"})), {"QLESS-29": "info"}),
        (keyspace(None, Entry(b"ql:s:run:1:q", "hash", {b"total": b"2", b"s1": b"1", b"mean": b"5"})), {"QLESS-29": "info"}),
        (keyspace(None, Entry(b"ql:s:run:1:q", "hash", {b"total": b"1", b"s-3": b"1"})), {"QLESS-29": "info"}),
        (keyspace(None, Entry(b"ql:s:run:1:q", "hash", {b"total": b"1", b"s3": b"1", b"vk": b"-2"})), {"QLESS-29": "info"}),
        (keyspace(None, Entry(b"ql:rs:gpu", "hash", {b"a": b"b"})), {"QLESS-30": "warning"}),
        (keyspace(None, Entry(b"ql:config", "string", b"x")), {"QLESS-30": "error"}),
        (keyspace(None, zset(b"q:q", UNTIL)), {"QLESS-30": "info"}),
        (keyspace(None, Entry(b"ql:config", "hash", {b"a": b"b"}, ttl_ms=9)), {"QLESS-30": "error"}),
        (keyspace({b"grace": b"1"}), {"QLESS-31": "warning"}),
        (keyspace({b"scheduled": b"5"}), {"QLESS-31": "warning"}),
        (keyspace({b"throttles": b'["ql:q:q"]'}, SLOT), {"QLESS-32": "error"}),
        (keyspace(HELD), {"QLESS-33": "warning"}),
        (keyspace(RUNNING, Entry(b"ql:th:x", "hash", {b"maximum": b"5"})), {"QLESS-33": "warning"}),
        (keyspace(THROTTLED, without=(b"th:x-pending",)), {"QLESS-34": "error"}),
        (keyspace(THROTTLED, zset(b"q:q-work", SCORE), without=(b"q:q-throttled",)), {"QLESS-34": "error"}),
        (
            keyspace(
                HELD,
                Entry(b"ql:th:ql:q:q-locks", "zset", [(b"1", 1.0), (b"2", 1.0)]),
                Entry(b"ql:th:ql:q:q", "hash", {b"maximum": b"1"}),
            ),
            {"QLESS-32": "error", "QLESS-35": "warning"},
        ),
        (keyspace({**RUNNING, b"expires": b"1800010000"}, zset(b"q:q-locks", 1800010000.0)), {"QLESS-36": "warning"}),
        (keyspace({b"time": b"1800010000"}), {"QLESS-36": "warning"}),
        (keyspace({b"id": b"1"}), {"QLESS-37": "warning"}),
        (keyspace({b"history": b"[]"}), {"QLESS-37": "warning"}),
        (keyspace(None, zset(b"q:q-work", -SCORE)), {"QLESS-37": "warning"}),
    ],
)
def test_one_thing_wrong_breaks_exactly_its_rules(entries: list[Entry], rules: dict[str, str]) -> None:
    assert found(entries) == rules


def test_a_missing_dependency_is_said_of_the_job_that_waits() -> None:
    seen = read_keyspace(FAMILY, keyspace(DEPENDS, without=(b"j:2", b"j:2-history", b"q:q-work")), "ql", NOW)
    assert {(finding.rule, finding.job_id) for finding in seen.findings()} == {("QLESS-21", "1"), ("QLESS-22", "2")}


@pytest.mark.parametrize(("jobs", "found"), [(1, True), (2, True), (3, True), (4, False)])
def test_circles_of_up_to_three_jobs_are_seen(jobs: int, found: bool) -> None:
    """More can't be told from what a single job knows."""
    entries: list[Entry] = []
    for number in range(jobs):
        job_id, other = b"%d" % number, b"%d" % ((number + 1) % jobs)
        entries += [
            Entry(b"ql:j:" + job_id, "hash", VALID | {b"jid": job_id, b"state": b"depends", b"tags": b"{}"}),
            Entry(b"ql:j:" + job_id + b"-history", "list", [b'[1,"put",{"q":"q"}]']),
            Entry(b"ql:j:" + job_id + b"-dependencies", "set", [other]),
            Entry(b"ql:j:" + other + b"-dependents", "set", [job_id]),
        ]
    depends = Entry(b"ql:q:q-depends", "zset", [(b"%d" % number, PUT) for number in range(jobs)])
    findings = read_keyspace(FAMILY, [*entries, depends, zset(b"queues", PUT, b"q")], "ql", NOW).findings()
    assert {(finding.rule, finding.job_id) for finding in findings} == (
        {("QLESS-22", str(number)) for number in range(jobs)} if found else set()
    )


def test_a_job_whose_dependency_is_complete_is_told_to_run() -> None:
    other = Entry(b"ql:j:2", "hash", VALID | {b"jid": b"2", b"tags": b"{}", b"state": b"complete", b"queue": b""})
    entries = keyspace(DEPENDS, other, zset(b"completed", PUT, b"2"), without=(b"q:q-work",))
    assert found(entries) == {"QLESS-21": "error"}
    seen = read_keyspace(FAMILY, entries, "ql", NOW)
    [finding] = seen.findings()
    commands = FAMILY.repair(finding, seen.subjects["", "1"], seen.keyspace)
    assert [command[:2] for command in commands] == [
        ("SREM", b"ql:j:2-dependents"),
        ("SREM", b"ql:j:1-dependencies"),
        ("HSET", b"ql:j:1"),
        ("ZADD", b"ql:q:q-work"),
        ("ZREM", b"ql:q:q-depends"),
    ]


@given(
    st.dictionaries(st.sampled_from(sorted(VALID)), st.one_of(numbers, st.just(b"running")), max_size=3), st.integers(0, 2**62)
)
def test_findings_are_one_printable_line_each(changes: dict[bytes, bytes], now_ms: int) -> None:
    for finding in read_keyspace(FAMILY, keyspace({**changes}), "ql", now_ms).findings():
        assert finding.detail.isprintable()
        assert len(finding.detail) < 1000


def test_many_odd_keys_are_counted_and_the_first_are_named() -> None:
    entries = keyspace(None, *(Entry(b"ql:rs:%03d" % number, "string", b"x") for number in range(50)))
    findings = read_keyspace(FAMILY, entries, "ql", NOW).findings()
    assert len(findings) == 21
    assert "30 more" in findings[-1].detail
