"""The rules against keyspaces that real crashes damaged, against healthy ones, and each against the smallest case of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ferryman.compat.bee import FAMILY
from ferryman.schema.fact import Entry
from ferryman.schema.rule import Finding, Severity
from ferryman.testing.keyspaces import read_keyspace

from ...support.captures import Capture, capture, captures

NOW = 1_800_000_000_000


def audit(case: Capture) -> list[Finding]:
    return read_keyspace(FAMILY, case.entries(), case.prefix, case.captured_at_ms).findings()


def test_a_healthy_keyspace_breaks_no_rule() -> None:
    assert audit(capture("bee", "healthy")) == []


@pytest.mark.parametrize("case", captures("bee"), ids=str)
def test_every_known_fault_is_found_and_nothing_else_is_invented(case: Capture) -> None:
    faults = {(fault["rule"], fault["id"]) for fault in case.expected.get("damage", [])}
    findings = audit(case)
    named = {(rule, each) for rule, each in faults if each.startswith("bee:") and "h:jobs" not in each}
    found = {(finding.rule, finding.key if (finding.rule, finding.key) in named else finding.job_id) for finding in findings}
    # The set of what a job waits for is found at the job that has no record.
    assert found == faults


def test_damage_that_costs_nothing_is_no_error() -> None:
    errors = {finding.rule for finding in audit(capture("bee", "crashed")) if finding.severity is Severity.ERROR}
    assert errors == {f"BEE-{number}" for number in (1, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 19, 20, 21, 22, 34)}


def test_only_what_could_not_be_run_right_elsewhere_is_refused() -> None:
    case = capture("bee", "crashed")
    seen = read_keyspace(FAMILY, case.entries(), case.prefix, case.captured_at_ms)
    refused = {
        subject.job_id: {finding.rule for finding in FAMILY.refusals(subject, seen.keyspace)}
        for subject in seen.subjects.values()
        if FAMILY.read(subject, seen.keyspace) is not None
    }
    notes = {job_id: said["note"] for job_id, said in case.expected["jobs_by_id"].items()}
    rules = {notes[job_id]: found for job_id, found in refused.items() if found}
    assert len(rules) == 5
    assert sorted(rule for found in rules.values() for rule in found) == ["BEE-3"] * 2 + ["BEE-6"] * 4 + ["BEE-7"]


def test_rules_are_numbered_from_1_to_37() -> None:
    numbered = [int(rule.id.removeprefix("BEE-")) for rule in FAMILY.rules]
    assert sorted(set(numbered)) == list(range(1, 38))
    assert numbered == sorted(numbered)
    assert all((rule.subject is None) != (rule.keyspace is None) for rule in FAMILY.rules)


# The smallest case of each rule: one sound job, and one thing wrong

WORKER = "host:1:07081540-e5a9-11f1-a542-1dc5dbceb549:mail"
OPTIONS = {
    "priority": 0,
    "delay": 0,
    "dependencies": {},
    "dependenciesOnTags": False,
    "preferredHostname": False,
    "retries": 5,
    "retryDelay": 30_000,
    "progressiveDelay": False,
    "ttl": 1_800_000,
}
STORIES = {
    "queued": "submitted queued",
    "new": "submitted delayed",
    "retried": "submitted queued popped exception delayed",
    "running": "submitted queued popped",
    "completed": "submitted queued popped completed",
    "failed": "submitted queued popped exception failed",
    "canceled": "submitted queued canceled",
    "expired": "submitted queued popped completed",
    "duplicate": "submitted queued popped duplicate",
}
SET_OF_STATUS = {
    "queued": ("queue", NOW - 5000),
    "new": ("delayed", NOW + 60_000),
    "retried": ("delayed", NOW + 60_000),
    "running": ("locks", NOW + 40_000),
    "completed": ("expires", NOW + 60_000),
    "failed": ("expires", NOW + 60_000),
}


def history(story: str) -> str:
    return json.dumps([{"event": event, "timestamp": NOW - 9000} for event in story.split()])


def record(status: str, job_id: str = "1", /, *, ttl_ms: int | None = None, **changes: Any) -> Entry:
    """A sound record of this status, with changed (None: removed) fields."""
    fields: dict[str, Any] = {
        "jid": job_id,
        "queue": "mail",
        "data": "[]",
        "options": OPTIONS,
        "worker": WORKER if status in ("running", "completed", "failed") else "",
        "status": status,
        "submitted": str(NOW - 9000),
        "retries": "0",
        "tags": "{}",
        "history": history(STORIES[status]),
    }
    if status in ("canceled", "expired"):
        ttl_ms = 60_000 if ttl_ms is None else ttl_ms
    values = {name: value for name, value in {**fields, **changes}.items() if value is not None}
    texts = {name.encode(): (value if isinstance(value, str) else json.dumps(value)).encode() for name, value in values.items()}
    return Entry(f"bee:h:jobs:{job_id}".encode(), "hash", texts, None if ttl_ms == -1 else ttl_ms)


def at(key: str, *members: str | tuple[str, float], kind: str | None = None) -> Entry:
    """A key with members: a zset if they have scores, else a set or what is said."""
    if any(isinstance(member, tuple) for member in members):
        return Entry(key.encode(), "zset", [(member[0].encode(), float(member[1])) for member in members])  # type: ignore[arg-type]
    return Entry(key.encode(), kind or "set", [str(member).encode() for member in members])


def string(key: str, value: str, ttl_ms: int | None = None) -> Entry:
    return Entry(key.encode(), "string", value.encode(), ttl_ms)


def valid(status: str, /, **changes: Any) -> list[Entry]:
    """A keyspace with one sound job of this status in its place."""
    entries = [string("bee:str:hive:options", '{"log":false}'), record(status, **changes)]
    if status in SET_OF_STATUS:
        role, score = SET_OF_STATUS[status]
        entries.append(at(f"bee:ss:{role}:mail", ("1", score)))
    if status == "running":
        entries += [at(f"bee:s:locks:{WORKER}", "1"), at("bee:ss:bees:mail", (WORKER, NOW - 20_000))]
    if status == "duplicate" and "duplicate" not in changes:
        entries[1] = record(status, duplicate="2", **changes)
        entries += [record("completed", "2"), at("bee:ss:expires:mail", ("2", NOW + 60_000))]
    return entries


def without(entries: list[Entry], *keys: str) -> list[Entry]:
    return [entry for entry in entries if entry.key.decode() not in keys]


def found(entries: list[Entry]) -> dict[str, str]:
    """Rule -> severity of everything that is said of the entries."""
    return {finding.rule: str(finding.severity) for finding in read_keyspace(FAMILY, entries, "bee", NOW).findings()}


BLOCKED = {"history": history("submitted dependancyWaiting")}
NEEDS = at("bee:s:dependencies:1", "2")


def blocked(*more: Entry) -> list[Entry]:
    """A job that waits for another one, which ``more`` describes."""
    return [*without(valid("new", **BLOCKED), "bee:ss:delayed:mail"), NEEDS, *more]


def needed(status: str = "queued", dependants: str = '["1"]') -> list[Entry]:
    """Job 2, for which job 1 waits."""
    role, score = SET_OF_STATUS.get(status, ("none", 0))
    in_set = [at(f"bee:ss:{role}:mail", ("2", score))] if status in SET_OF_STATUS else []
    return [record(status, "2", dependants=dependants), *in_set]


@pytest.mark.parametrize("status", STORIES)
def test_the_valid_job_breaks_no_rule(status: str) -> None:
    assert found(valid(status)) == {}


@pytest.mark.parametrize("status", ["queued", "new", "retried"])
def test_a_job_that_waits_for_a_valid_one_breaks_no_rule(status: str) -> None:
    assert found(blocked(*needed(status))) == {}


@pytest.mark.parametrize(
    ("entries", "rules"),
    [
        (valid("queued", jid=None), {"BEE-1": "error", "BEE-11": "error"}),
        (valid("queued", jid="9"), {"BEE-1": "error"}),
        (valid("queued", data=None), {"BEE-1": "error"}),
        (valid("queued", submitted=None), {"BEE-1": "warning"}),
        (valid("queued", history=None, tags=None), {"BEE-1": "warning"}),
        (valid("queued", data="undefined"), {"BEE-2": "error"}),
        (valid("completed", data="undefined"), {"BEE-2": "error"}),
        (valid("completed", result="undefined"), {"BEE-2": "error"}),
        (valid("queued", tags="5"), {"BEE-2": "error"}),
        (valid("queued", options="[1]"), {"BEE-2": "error"}),
        (valid("queued", options="[]"), {"BEE-3": "error"}),
        (valid("queued", options={**OPTIONS, "priority": "high"}), {"BEE-3": "error"}),
        (valid("queued", options={**OPTIONS, "priority": None}), {"BEE-3": "error"}),
        (valid("queued", options={**OPTIONS, "priority": "7", "retryDelay": "5", "ttl": "60"}), {}),
        (valid("queued", options={**OPTIONS, "delay": "5"}), {"BEE-3": "error"}),
        (valid("queued", options={**OPTIONS, "ttl": 300.5}), {"BEE-3": "error"}),
        (valid("queued", options={**OPTIONS, "retries": True}), {"BEE-3": "error"}),
        (valid("queued", options={**OPTIONS, "dependencies": {"a": 1}}), {"BEE-3": "error"}),
        (valid("queued", options={"ttl": 1, "retries": 0, "retryDelay": 0}), {}),
        (without(valid("new", status="paused"), "bee:ss:delayed:mail"), {"BEE-4": "error"}),
        (without(valid("queued"), "bee:ss:queue:mail"), {"BEE-5": "error"}),
        (without(valid("new"), "bee:ss:delayed:mail"), {"BEE-6": "error"}),
        (without(valid("retried"), "bee:ss:delayed:mail"), {"BEE-7": "error"}),
        (without(valid("running"), "bee:ss:locks:mail"), {"BEE-8": "error"}),
        (without(valid("running"), f"bee:s:locks:{WORKER}"), {"BEE-8": "warning"}),
        (without(valid("completed"), "bee:ss:expires:mail"), {"BEE-9": "error"}),
        (without(valid("completed", ttl_ms=5000), "bee:ss:expires:mail"), {}),
        (valid("canceled", ttl_ms=-1), {"BEE-10": "error"}),
        ([*valid("expired"), at("bee:ss:expires:mail", ("1", NOW))], {"BEE-10": "error"}),
        ([*valid("duplicate"), at("bee:ss:queue:mail", ("1", NOW))], {"BEE-11": "error"}),
        ([*valid("queued"), at("bee:ss:delayed:mail", ("9", NOW))], {"BEE-11": "error"}),
        ([*valid("canceled"), at("bee:ss:locks:x", ("9", NOW))], {"BEE-12": "error"}),
        ([*blocked(*needed()), at("bee:ss:locks:mail", ("1", NOW))], {"BEE-12": "error"}),
        ([*valid("canceled"), at("bee:ss:expires:x", ("9", NOW))], {"BEE-13": "error"}),
        (
            [*without(valid("failed"), "bee:ss:expires:mail"), at("bee:ss:expires:mail", ("1", NOW - 6000))],
            {"BEE-13": "warning"},
        ),
        ([*valid("queued"), at("bee:ss:queue:other", ("1", NOW))], {"BEE-11": "error", "BEE-14": "error"}),
        ([*valid("running"), at("bee:s:locks:other:1:u:mail", "1")], {"BEE-15": "error"}),
        ([*valid("queued"), at("bee:s:locks:other:1:u:mail", "9")], {"BEE-15": "error"}),
        (without(valid("running"), "bee:ss:bees:mail"), {"BEE-16": "warning"}),
        (
            [*without(valid("running"), "bee:ss:bees:mail"), at("bee:ss:bees:mail", (WORKER, NOW - 70_000))],
            {"BEE-16": "warning"},
        ),
        (
            [*without(valid("running"), "bee:ss:locks:mail"), at("bee:ss:locks:mail", ("1", NOW - 6000))],
            {"BEE-17": "warning"},
        ),
        ([*valid("running"), string(f"bee:str:lock-waits:{WORKER}:1", "2", 5000)], {"BEE-18": "warning"}),
        ([*valid("running"), string(f"bee:str:lock-waits:{WORKER}:1", "4", 5000)], {"BEE-18": "info"}),
        ([*valid("queued"), string(f"bee:str:lock-waits:{WORKER}:1", "4")], {"BEE-18": "warning"}),
        ([*valid("canceled"), at("bee:l:hashes:mail:k", "1", kind="list")], {"BEE-19": "error"}),
        ([*valid("queued"), at("bee:l:hashes:mail:k", "9", kind="list")], {"BEE-19": "error"}),
        (valid("completed", hash="k"), {"BEE-20": "error"}),
        ([*valid("completed", hash="k"), at("bee:l:hashes:mail:k", "1", kind="list")], {}),
        ([*valid("completed", hash="k"), at("bee:l:hashes:mail:k", "1", "9", kind="list")], {"BEE-20": "error"}),
        (valid("duplicate", duplicate="9"), {"BEE-21": "error"}),
        ([*valid("duplicate", duplicate="2"), record("expired", "2")], {"BEE-21": "error"}),
        ([*valid("duplicate", duplicate="2", ttl_ms=5), record("expired", "2")], {}),
        (blocked(), {"BEE-22": "error"}),
        (blocked(*needed("completed")), {"BEE-22": "error"}),
        (blocked(*needed(dependants="{}")), {"BEE-22": "error"}),
        (blocked(needed()[0]), {"BEE-5": "error", "BEE-22": "error"}),
        ([*valid("queued"), NEEDS], {"BEE-23": "warning"}),
        ([*valid("canceled"), at("bee:s:dependencies:9", "8")], {"BEE-23": "warning"}),
        ([*valid("canceled"), at("bee:s:dependencies:1", "8")], {}),
        ([*valid("new"), *needed()], {"BEE-24": "error"}),
        ([*valid("canceled"), *needed()], {}),
        ([*valid("queued"), at("bee:s:tags:a", "1")], {"BEE-25": "warning"}),
        ([*valid("queued"), at("bee:s:tags:a", "9")], {"BEE-25": "warning"}),
        (valid("queued", tags='["a",1.5]'), {"BEE-26": "info"}),
        ([*valid("queued", tags='["a",1.5]'), at("bee:s:tags:a", "1"), at("bee:s:tags:1.5", "1")], {}),
        (valid("queued", parent="p"), {"BEE-27": "warning"}),
        ([*valid("queued"), at("bee:s:p:children", "1")], {"BEE-27": "warning"}),
        ([*valid("queued", parent="p"), at("bee:s:p:children", "1")], {}),
        (without(valid("queued"), "bee:str:hive:options"), {"BEE-28": "error"}),
        ([string("bee:str:hive:options", "on")], {"BEE-28": "error"}),
        ([*valid("queued"), Entry(b"bee:scripts", "hash", {b"job/put": b"x"})], {"BEE-29": "warning"}),
        ([*valid("queued"), Entry(b"bee:h:jobs:bee:h:jobs:1", "hash", {b"history": b"[]"})], {"BEE-30": "warning"}),
        ([*valid("queued"), string("bee:x", "")], {"BEE-30": "warning"}),
        ([*valid("queued"), string("bee:ss:delayed:x", "")], {"BEE-30": "error"}),
        ([*without(valid("queued"), "bee:ss:queue:mail"), at("bee:ss:queue:mail", ("1", 5.0))], {"BEE-31": "warning"}),
        ([*without(valid("queued"), "bee:ss:queue:mail"), at("bee:ss:queue:mail", ("1", NOW + 5000))], {"BEE-31": "warning"}),
        (valid("queued", retries="6"), {"BEE-32": "info"}),
        (valid("queued", retries="x"), {"BEE-32": "info"}),
        (valid("queued", history=history("submitted")), {"BEE-33": "warning"}),
        (valid("queued", history=history("submitted canceled queued")), {"BEE-33": "warning"}),
        (valid("queued", history=history("submitted popped completed queued")), {"BEE-34": "error"}),
        (valid("completed", history=history("popped completed popped completed")), {"BEE-34": "error"}),
        (valid("completed", history=history("popped queued completed")), {"BEE-34": "error"}),
        (valid("failed", history=history("popped completed popped failed")), {"BEE-34": "error"}),
    ],
)
def test_one_thing_wrong_breaks_exactly_its_rules(entries: list[Entry], rules: dict[str, str]) -> None:
    assert found(entries) == rules


def test_a_blocked_job_of_0_0_3_is_measured_by_its_own_spelling() -> None:
    entries = without(valid("new", history=history("submitted dependancy_waiting")), "bee:ss:delayed:mail")
    assert found([*entries, NEEDS, *needed()]) == {}


def test_many_odd_keys_are_counted_and_the_first_are_named() -> None:
    unexpected = [string(f"bee:x:{number:03d}", "") for number in range(50)]
    findings = read_keyspace(FAMILY, [*valid("queued"), *unexpected], "bee", NOW).findings()
    assert len(findings) == 21
    assert "30 more" in findings[-1].detail
