"""From pjq to ``ferryman://`` and back, by the command: captured and generated keyspaces."""

from __future__ import annotations

from typing import Any

import pytest
from ferryman.compat.pjq import FAMILY
from ferryman.testing.keyspaces import dump, read_keyspace, store

from ...support.captures import Capture, captures, load
from ...support.command import ferryman
from ...support.servers import Server

pytestmark = pytest.mark.in_turn

NOW_MS = 1_800_000_000_000
TARGET_DB = 2

REFUSED = {"crashed": {"PJQ-1": 1, "PJQ-2": 1, "PJQ-3": 2, "PJQ-4": 1, "PJQ-17": 3}, "older-version": {"PJQ-17": 3}}
"""Jobs that nobody could run, or of which nothing tells whether they have run."""

each_capture = pytest.mark.parametrize("case", captures("pjq"), ids=str)


NEVER_DISPATCHED = "347a8cf4-84b7-4135-be53-a89d968828b6"
"""Accepted under a wrong id. That it lacks the time of its dispatch is worth a note only as long as it is at work."""


def migrate(source: str, target: str, now_ms: int) -> dict[str, Any]:
    """Migrates, verifies that nothing differs, and gives the summary."""
    outcome = ferryman("migrate", source, target, "--now", str(now_ms), "--format", "json")
    assert outcome.status in (0, 1), outcome.stderr
    differences = ferryman("verify", source, target, "--format", "json").lines()[:-1]
    assert [each for each in differences if (each["job_id"], each["field"]) != (NEVER_DISPATCHED, "extra")] == []
    assert differences == [] or "family=pjq" in target
    return outcome.lines()[-1]


@pytest.mark.parametrize("family", ["ferryman", "pjq"])
@each_capture
def test_a_captured_keyspace_migrates_and_verifies(server: Server, case: Capture, family: str) -> None:
    with server.client() as client:
        load(case, client)
        before = dump(client)
        prefix = "new:" if family == "pjq" else "new"
        target = server.url(TARGET_DB, family=family, prefix=prefix)
        summary = migrate(server.url(family="pjq"), target, case.captured_at_ms)
        refused = REFUSED.get(case.name, {})
        assert {rule: len(ids) for rule, ids in summary["refused"].items()} == refused
        assert (summary["read"], summary["written"]) == (case.expected["jobs"], case.expected["jobs"] - sum(refused.values()))
        assert dump(client) == before


@each_capture
def test_jobs_that_wait_run_in_their_order(server: Server, case: Capture) -> None:
    with server.client() as client:
        load(case, client)
        migrate(server.url(family="pjq"), server.url(TARGET_DB), case.captured_at_ms)
        listed = ferryman("jobs", server.url(TARGET_DB), "--format", "json", "--state", "waiting").lines()
        held = {row["id"] for row in listed if "migration" in row["extra"]}
        assert len(held) == case.expected["by_state"].get("active", 0) - (2 if case.name == "crashed" else 0)
        for queue, order in case.expected["pop_order"].items():
            rows = [row["id"] for row in listed if row["queue"] == queue and row["id"] not in held]
            if case.name == "crashed":
                # Its order was drained when every lease was over, which mends a part of the damage.
                order = [job_id for job_id in dict.fromkeys(order) if job_id in rows]
                rows = [job_id for job_id in rows if job_id in order]
            assert rows == order, queue


def test_what_went_to_a_native_keyspace_comes_back_to_the_program(server: Server) -> None:
    case = next(each for each in captures("pjq") if each.name == "healthy")
    with server.client() as client, server.client(3) as returned:
        load(case, client)
        there, back = server.url(TARGET_DB), server.url(3, family="pjq")
        migrate(server.url(family="pjq"), there, case.captured_at_ms)
        migrate(there, back, case.captured_at_ms)
        before, after = dump(client), dump(returned)
        for job_id, said in case.expected["jobs_by_id"].items():
            # Where a worker had taken the job, our own field tells what became of it.
            assert before[job_id.encode()].value.items() <= after[job_id.encode()].value.items()
            if said["state"] in ("completed", "failed") or (said["state"] == "waiting" and "readmitted" not in said):
                assert after[job_id.encode()].value == before[job_id.encode()].value
        for key, entry in before.items():
            if key.startswith(b"jobs_queued:"):
                # Jobs that were at work run again, before the rest.
                assert after[key].value[: len(entry.value)] == entry.value
            elif key.startswith(b"jobs_finished:"):
                assert after[key] == entry
        assert not [key for key in after if key.startswith((b"workers_", b"jobs_dispatched:", b"jobs_processing:"))]


def test_jobs_of_kue_can_be_run_by_the_program(server: Server) -> None:
    case = next(each for each in captures("kue") if each.name == "healthy")
    with server.client() as client, server.client(TARGET_DB) as target:
        load(case, client)
        source, there = server.url(family="kue", prefix=case.prefix), server.url(TARGET_DB, family="pjq")
        outcome = ferryman("migrate", source, there, "--now", str(case.captured_at_ms), "--format", "json")
        summary = outcome.lines()[-1]
        # pjq knows no due times, and never tries again what failed.
        assert set(summary["refused"]) <= {"PJQ-W3", "PJQ-W6"}
        assert summary["written"] > 30
        assert ferryman("verify", source, there, "--format", "json").lines()[:-1] == []
        assert ferryman("audit", there, "--now", str(case.captured_at_ms), "--format", "json").status == 0
        for key in target.scan_iter("jobs_queued:*"):
            for job_id in target.lrange(key, 0, -1):
                assert target.hexists(job_id, "json")


def test_a_keyspace_is_detected(server: Server) -> None:
    with server.client() as client:
        store(client, FAMILY, "", FAMILY.generate(300, 1, NOW_MS), NOW_MS)
        outcome = ferryman("detect", server.url(), "--format", "json")
    [found] = outcome.lines()[:-1]
    assert (found["family"], found["prefix"], found["confidence"], found["jobs"]) == ("pjq", "", "sure", 300)


def test_an_audit_of_an_empty_database_says_what_is_missing(server: Server) -> None:
    with server.client() as client:
        client.set("counter", 1)
        outcome = ferryman("audit", server.url(family="pjq"))
    assert outcome.status == 2
    assert "no pjq keys" in outcome.error


def test_a_keyspace_may_be_carried_within_its_database(server: Server) -> None:
    case = next(each for each in captures("pjq") if each.name == "healthy")
    with server.client() as client:
        load(case, client)
        before = ferryman("audit", server.url(family="pjq"), "--now", str(case.captured_at_ms), "--format", "json").lines()
        migrate(server.url(family="pjq"), server.url(), case.captured_at_ms)
        # A second look at the source does not take the target for a part of it.
        after = ferryman("audit", server.url(family="pjq"), "--now", str(case.captured_at_ms), "--format", "json").lines()
        assert [line for line in after if "rule" in line] == [line for line in before if "rule" in line]
        assert len(ferryman("jobs", server.url(family="pjq"), "--format", "json").lines()) == 71


@each_capture
def test_an_audit_of_a_snapshot_file_says_what_is_said_of_the_keys(case: Capture) -> None:
    outcome = ferryman("audit", f"ferryman+rdb://{case.rdb}?family=pjq", "--now", str(case.captured_at_ms), "--format", "json")
    printed = sorted((line["rule"], line["job_id"] or "", line["key"]) for line in outcome.lines() if "rule" in line)
    findings = read_keyspace(FAMILY, case.entries(), case.prefix, case.captured_at_ms).findings()
    assert printed == sorted((each.rule, each.job_id or "", each.key) for each in findings)
