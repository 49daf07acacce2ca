"""Every capture of every system, as a user meets it: detected, listed and audited by the command."""

from __future__ import annotations

from collections import Counter

import pytest
import redis

from ..support.captures import DATA, Capture, captures, load
from ..support.command import ferryman
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

SYSTEMS = sorted(folder.name for folder in DATA.iterdir() if folder.is_dir())


@pytest.mark.parametrize("case", [case for system in SYSTEMS for case in captures(system)], ids=str)
def test_a_capture_is_detected_listed_and_audited(server: Server, client: redis.Redis, case: Capture) -> None:
    load(case, client)
    *found, summary = ferryman("detect", server.url(), "--format", "json").lines()
    assert [(each["family"], each["prefix"]) for each in found if each["confidence"] != "doubtful"] == [
        (case.system, case.prefix)
    ]
    assert summary["database_keys"] == summary["scanned"] == client.dbsize()

    arguments = (server.url(family="auto"), "--format", "json", "--now", str(case.captured_at_ms))
    jobs = ferryman("jobs", *arguments).lines()
    assert found[0]["jobs"] == len(jobs)
    states = Counter(job["state"] for job in jobs)
    expected = Counter(case.expected.get("by_canonical_state", case.expected["by_state"]))
    if case.system == "kombu":
        # For kombu, a message that is not due yet waits like any other.
        states["waiting"] += states.pop("scheduled")
    if "crashed" in case.name:
        # What is left of broken jobs is listed too, though the original software no longer shows it.
        assert states >= expected
        assert len(jobs) >= case.expected["jobs"]
    else:
        assert states == expected
        assert len(jobs) == case.expected["jobs"]

    audit = ferryman("audit", *arguments)
    findings = audit.lines()
    assert audit.status == any(finding["severity"] != "info" for finding in findings)
    if "crashed" in case.name:
        assert any(finding["severity"] == "error" for finding in findings)
