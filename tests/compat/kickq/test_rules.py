"""The rules against keyspaces that real crashes damaged, against healthy ones, and each against the smallest case of its own."""

from __future__ import annotations

from typing import Any

import pytest
from ferryman.compat.kickq import FAMILY
from ferryman.schema.fact import Entry
from ferryman.schema.rule import Finding, Severity
from ferryman.testing.keyspaces import read_keyspace

from ...support.captures import Capture, capture, captures
from .keyspaces import CREATED, DAY, DELAYED, FAILED, NOW, RETRY, SUCCESS, record

HEALTHY = [case for case in captures("kickq") if not case.expected.get("damage")]
WITH_FAULTS = [case for case in captures("kickq") if case.expected.get("damage")]


def audit(case: Capture) -> list[Finding]:
    return read_keyspace(FAMILY, case.entries(), case.prefix, case.captured_at_ms).findings()


@pytest.mark.parametrize("case", HEALTHY, ids=str)
def test_nothing_is_said_of_a_healthy_keyspace(case: Capture) -> None:
    assert audit(case) == []


@pytest.mark.parametrize("case", WITH_FAULTS, ids=str)
def test_every_known_fault_is_found_and_nothing_else_is_invented(case: Capture) -> None:
    faults = {(fault["rule"], fault["id"]) for fault in case.expected["damage"]}
    assert {(finding.rule, finding.job_id) for finding in audit(case)} == faults


@pytest.mark.parametrize("name", ["older-version-0.0.13", "older-version-0.0.10"])
def test_what_old_releases_leave_by_themselves_is_no_error(name: str) -> None:
    assert {finding.severity for finding in audit(capture("kickq", name))} == {Severity.WARNING}


def test_only_what_could_not_be_run_right_elsewhere_is_refused() -> None:
    case = capture("kickq", "crashed")
    seen = read_keyspace(FAMILY, case.entries(), case.prefix, case.captured_at_ms)
    refused = {
        subject.job_id: {finding.rule for finding in FAMILY.refusals(subject, seen.keyspace)}
        for subject in seen.subjects.values()
    }
    # Job 51, which had failed for good, is carried for those who accept it. Three have lost when they are due.
    assert {job_id: rules for job_id, rules in refused.items() if rules} == {
        **{job_id: {"KICKQ-2"} for job_id in ("48", "49", "50", "51", "52")},
        **{job_id: {"KICKQ-11"} for job_id in ("19", "30", "32")},
    }


def test_rules_are_numbered_from_1_to_29() -> None:
    numbered = [int(rule.id.removeprefix("KICKQ-")) for rule in FAMILY.rules]
    assert sorted(set(numbered)) == list(range(1, 30))
    assert numbered == sorted(numbered)
    assert all((rule.subject is None) != (rule.keyspace is None) for rule in FAMILY.rules)


# The smallest case of each rule: one sound job, and one thing wrong


def keyspace(
    entry: Entry,
    *,
    missing: tuple[bytes, ...] = (),
    more: tuple[Entry, ...] = (),
    due: float = CREATED + 120_000,
    purge: float = CREATED + DAY,
) -> list[Entry]:
    """One job in a keyspace of its own, in the places of its state, without ``missing`` keys, with ``more``."""
    word = entry.value.get(b"state", b"new")
    entries = [
        Entry(b"kickq:id", "string", b"1"),
        entry,
        Entry(b"kickq:state:" + word, "set", [b"1"]),
        Entry(b"kickq:time-index", "zset", [(b"1", float(CREATED))]),
    ]
    if word in (b"new", b"queued"):
        entries.append(Entry(b"kickq:queue:mail", "list", [b"1"]))
    elif word in (b"delayed", b"retry", b"ghost"):
        entries.append(Entry(b"kickq:scheduled", "zset", [(b"1", due)]))
    elif word in (b"success", b"fail"):
        entries.append(Entry(b"kickq:scheduled-purge", "zset", [(b"1", purge)]))
    return [each for each in entries if each.key not in missing] + list(more)


def found(entries: list[Entry]) -> dict[str, Severity]:
    """Rule -> severity of everything that is said of the entries."""
    return {finding.rule: finding.severity for finding in read_keyspace(FAMILY, entries, "kickq", NOW).findings()}


GHOST_RUN: dict[str, Any] = {**RETRY["runs"][0], "state": "ghost"}
PROCESSING: dict[str, Any] = {"state": b"processing", "processTimeout": 60_000}


@pytest.mark.parametrize(
    "entries",
    [
        keyspace(record()),
        keyspace(record(**SUCCESS)),
        keyspace(record(**FAILED)),
        keyspace(record(**{**FAILED, "runs": [GHOST_RUN]})),
        keyspace(record(**DELAYED)),
        keyspace(record(**RETRY)),
        keyspace(record(**{**RETRY, "item_state": "ghost", "runs": [GHOST_RUN]}, state=b"ghost")),
        keyspace(record(**{**RETRY, "scheduledFor": NOW - 5}, state=b"queued")),
        keyspace(record(**PROCESSING)),
    ],
    ids=["new", "success", "fail", "failed by time", "delayed", "retry", "ghost", "queued", "processing"],
)
def test_a_valid_job_breaks_no_rule(entries: list[Entry]) -> None:
    assert found(entries) == {}


def changed(**fields: bytes) -> Entry:
    """The waiting job with other hash fields."""
    entry = record()
    return Entry(entry.key, "hash", {**entry.value, **{name.encode(): value for name, value in fields.items()}})


LISTED = Entry(b"kickq:queue:mail", "list", [b"1"])


@pytest.mark.parametrize(
    ("entries", "rules"),
    [
        (keyspace(Entry(b"kickq:job:1", "hash", record().value, ttl_ms=9)), {"KICKQ-1": "error"}),
        (keyspace(record(), more=(Entry(b"kickq:lock", "string", b"x"),)), {"KICKQ-1": "warning"}),
        (keyspace(record(), more=(Entry(b"kickq:scheduled", "set", [b"1"]),)), {"KICKQ-1": "error"}),
        (keyspace(record(), more=(Entry(b"kickq:queue:x", "list", [], ttl_ms=9), Entry(b"kickq:state:fail", "set", []))), {}),
        (
            keyspace(record(), missing=(b"kickq:queue:mail",), more=(Entry(b"kickq:queue:mail", "list", [b"1"], 9),)),
            {"KICKQ-1": "error"},
        ),
        (keyspace(record(), more=(Entry(b"kickq:ferryman:staged:q", "zset", [(b"1", 0.0)]),)), {"KICKQ-1": "warning"}),
        (keyspace(record(raw=b'{"id":"1"}', state=b"new")), {"KICKQ-2": "error"}),
        (keyspace(record(raw=b'{"id":"1"}', state=b"success")), {"KICKQ-2": "warning"}),
        (keyspace(record(raw=b"null", state=b"new")), {"KICKQ-2": "error"}),
        (keyspace(record(raw=b'{"id":1,"name":"mail"}', state=b"new")), {"KICKQ-2": "error"}),
        (keyspace(changed(name=b"7")), {"KICKQ-25": "warning"}),
        (keyspace(record(state=b"paused")), {"KICKQ-3": "warning"}),
        (keyspace(record(), more=(Entry(b"kickq:state:paused", "set", [b"1"]),)), {"KICKQ-3": "warning", "KICKQ-4": "error"}),
        (keyspace(record(), missing=(b"kickq:state:new",)), {"KICKQ-4": "warning"}),
        (
            keyspace(record(), missing=(b"kickq:state:new",), more=(Entry(b"kickq:state:fail", "set", [b"1"]),)),
            {"KICKQ-4": "warning"},
        ),
        (keyspace(record(), more=(Entry(b"kickq:state:fail", "set", [b"1"]),)), {"KICKQ-4": "error"}),
        (keyspace(record(), more=(Entry(b"kickq:state:fail", "set", [b"9"]),)), {"KICKQ-5": "warning"}),
        (keyspace(record(), missing=(b"kickq:time-index",)), {"KICKQ-6": "warning"}),
        (keyspace(record(createTime=CREATED + 1)), {"KICKQ-6": "warning", "KICKQ-25": "warning"}),
        (keyspace(record(), more=(Entry(b"kickq:time-index", "zset", [(b"9", 1.0)]),)), {"KICKQ-7": "warning"}),
        (keyspace(record(), missing=(b"kickq:queue:mail",)), {"KICKQ-8": "error"}),
        (keyspace(record(), more=(Entry(b"kickq:queue:mail", "list", [b"9"]),)), {"KICKQ-9": "error"}),
        (keyspace(record(**SUCCESS), more=(LISTED,)), {"KICKQ-10": "error"}),
        (keyspace(record(**DELAYED), missing=(b"kickq:scheduled",)), {"KICKQ-11": "error"}),
        (keyspace(record(), more=(Entry(b"kickq:scheduled", "zset", [(b"1", NOW + 5.0)]),)), {"KICKQ-12": "error"}),
        (keyspace(record(**{**DELAYED, "scheduledFor": NOW - 1501}), due=NOW - 1501.0), {"KICKQ-13": "error"}),
        (keyspace(record(**{**DELAYED, "scheduledFor": NOW - 1500}), due=NOW - 1500.0), {}),
        (keyspace(record(**SUCCESS), missing=(b"kickq:scheduled-purge",)), {"KICKQ-14": "warning"}),
        (keyspace(record(), more=(Entry(b"kickq:scheduled-purge", "zset", [(b"1", NOW + 5.0)]),)), {"KICKQ-15": "error"}),
        (keyspace(record(**{**SUCCESS, "scheduledFor": NOW - 2000}), purge=NOW - 2000.0), {"KICKQ-16": "warning"}),
        (keyspace(record(), more=(Entry(b"kickq:scheduled", "zset", [(b"9", NOW + 5.0)]),)), {"KICKQ-17": "error"}),
        (keyspace(record(**{**PROCESSING, "processTimeout": 57_999})), {"KICKQ-18": "warning"}),
        (keyspace(record(**{**PROCESSING, "processTimeout": None})), {"KICKQ-18": "warning"}),
        (keyspace(record(**{**PROCESSING, "updateTime": None})), {"KICKQ-18": "warning"}),
        (keyspace(record(state=b"processing", item_state="success")), {"KICKQ-18": "warning", "KICKQ-19": "error"}),
        (keyspace(record(state=b"queued")), {"KICKQ-19": "error"}),
        (keyspace(record(**{**SUCCESS, "complete": False})), {"KICKQ-20": "error"}),
        (keyspace(record(**{**SUCCESS, "runs": []})), {"KICKQ-20": "error"}),
        (keyspace(record(**{**SUCCESS, "success": False})), {"KICKQ-20": "error"}),
        (keyspace(record(**{**RETRY, "complete": True, "finishTime": 5})), {"KICKQ-20": "warning"}),
        (keyspace(record(**{**RETRY, "runs": [GHOST_RUN]})), {"KICKQ-20": "error"}),
        (keyspace(record(), missing=(b"kickq:id",)), {"KICKQ-21": "error"}),
        (keyspace(record(), missing=(b"kickq:id",), more=(Entry(b"kickq:id", "string", b"x"),)), {"KICKQ-21": "error"}),
        (keyspace(record(runs=None)), {"KICKQ-22": "error"}),
        (keyspace(record(**{**RETRY, "runs": [{**RETRY["runs"][0], "count": 2}]})), {"KICKQ-22": "warning"}),
        (keyspace(record(), more=(LISTED,)), {"KICKQ-23": "error"}),
        (
            keyspace(record(), missing=(b"kickq:queue:mail",), more=(Entry(b"kickq:queue:b", "list", [b"1"]),)),
            {"KICKQ-24": "error"},
        ),
        (keyspace(changed(updateTime=b"5")), {"KICKQ-25": "warning"}),
        (keyspace(record(**DELAYED), due=CREATED + 120_001.0), {"KICKQ-26": "warning"}),
        (keyspace(record(**{**SUCCESS, "scheduledFor": None})), {"KICKQ-26": "warning"}),
    ],
)
def test_one_thing_wrong_breaks_exactly_its_rules(entries: list[Entry], rules: dict[str, str]) -> None:
    assert found(entries) == rules


def test_a_job_without_a_number_needs_no_counter() -> None:
    entries = [record(b"0001"), Entry(b"kickq:state:new", "set", [b"0001"])]
    assert found(entries) == {"KICKQ-6": "warning", "KICKQ-8": "error"}


def test_many_odd_keys_are_counted_and_the_first_are_named() -> None:
    entries = keyspace(record(), more=tuple(Entry(b"kickq:unique:%03d" % number, "string", b"x") for number in range(50)))
    findings = read_keyspace(FAMILY, entries, "kickq", NOW).findings()
    assert len(findings) == 21
    assert "30 more" in findings[-1].detail
