"""From qless to ferryman, by the command line on a real server: captured keyspaces of all generations migrate and verify."""

from __future__ import annotations

from typing import Any

import pytest
from ferryman.testing.keyspaces import dump

from ...support.captures import Capture, captures, load
from ...support.command import ferryman
from ...support.servers import Server

pytestmark = pytest.mark.in_turn

TARGET_DB = 2

REFUSED = {
    "crashed": {"QLESS-2": ["sched-evicted"], "QLESS-24": ["fractional-retries", "inf-priority", "nan-priority"]},
    "odd": {"NATIVE-W1": [""], "NATIVE-W2": ["in-the-nameless-queue"], "QLESS-25": ["tags-object"], "QLESS-4": ["delay-huge"]},
    "reqless-0.13.3": {"NATIVE-W5": ["gpu-2"]},
    "crashed-reqless": {"NATIVE-W5": ["late", "pending-behind", "starved-2"]},
}
"""The stub of a job that was evicted; numbers that are none, and a due time that is no time; names that a native keyspace can't
have; jobs that wait for a throttle, which only reqless gives out."""


def migrate(source: str, target: str, *options: str) -> dict[str, Any]:
    """Migrates, verifies, and gives the summary."""
    outcome = ferryman("migrate", source, target, "--format", "json", *options)
    assert outcome.status in (0, 1), outcome.stderr
    summary = outcome.lines()[-1]
    checked = ferryman("verify", source, target, "--format", "json")
    assert checked.lines()[:-1] == []
    return summary


@pytest.mark.parametrize("case", captures("qless"), ids=str)
def test_a_captured_keyspace_migrates_and_verifies(server: Server, case: Capture) -> None:
    with server.client() as client:
        load(case, client)
        before = dump(client)
        summary = migrate(server.url(0, family="qless", prefix="ql"), server.url(TARGET_DB), "--now", str(case.captured_at_ms))
        jobs = case.expected["jobs"] + len(case.expected.get("unreadable_by_api", ()))
        refused = REFUSED.get(case.name, {})
        assert (summary["read"], summary["refused"]) == (jobs, refused)
        assert summary["written"] == jobs - sum(map(len, refused.values()))
        assert dump(client) == before


@pytest.mark.parametrize("case", [case for case in captures("qless") if case.name in ("healthy", "reqless-0.13.3")], ids=str)
def test_what_went_to_a_native_keyspace_comes_back_to_qless(server: Server, case: Capture) -> None:
    with server.client() as client, server.client(3) as returned:
        load(case, client)
        moment = ("--now", str(case.captured_at_ms))
        there, back = server.url(TARGET_DB), server.url(3, family="qless", prefix="ql")
        migrate(server.url(0, family="qless", prefix="ql"), there, *moment)
        migrate(there, back, *moment)
        before, after = dump(client), dump(returned)
        stayed = {job_id.encode() for ids in REFUSED.get(case.name, {}).values() for job_id in ids}
        held = {member for key in before if key.endswith(b"-locks") for member, _ in before[key].value}
        for key, entry in before.items():
            job_id = key.removeprefix(b"ql:j:").removesuffix(b"-history")
            if key.startswith(b"ql:j:") and job_id not in {*held, *stayed}:
                assert (sorted(after[key].value), key) == (sorted(entry.value), key)
            if key.startswith(b"ql:q:") and key.endswith((b"-work", b"-scheduled", b"-depends")):
                # What a worker had waits again, before the others of its priority.
                assert [item for item in after[key].value if item[0] not in held] == entry.value
