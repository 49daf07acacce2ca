"""From bee to a queue of ferryman's, to another bee, and back: captured keyspaces, by the command that users give."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from ferryman.testing.faults import changed_keys
from ferryman.testing.keyspaces import dump

from ...support.captures import Capture, capture, captures
from ...support.captures import load as load_lasting
from ...support.command import ferryman
from ...support.servers import Server

pytestmark = pytest.mark.in_turn

each_capture = pytest.mark.parametrize("case", captures("bee"), ids=str)


def load(case: Capture, client: redis.Redis) -> None:
    """The capture with records that are to die, though not while the test runs."""
    load_lasting(case, client)
    for entry in case.entries():
        if entry.ttl_ms is not None:
            client.pexpire(entry.key, max(entry.ttl_ms, 600_000))


def migrate(case: Capture, source: str, target: str) -> dict[str, Any]:
    """Migrates, verifies that nothing differs, and gives the summary."""
    moment = ("--now", str(case.captured_at_ms), "--format", "json")
    outcome = ferryman("migrate", source, target, *moment)
    assert outcome.status in (0, 1), outcome.stderr
    verified = ferryman("verify", source, target, *moment)
    assert verified.lines()[:-1] == []
    return outcome.lines()[-1]


@pytest.mark.parametrize("family", ["ferryman", "bee"])
@each_capture
def test_a_captured_keyspace_migrates_and_verifies(server: Server, case: Capture, family: str) -> None:
    with server.client() as client:
        load(case, client)
        before = dump(client)
        summary = migrate(case, server.url(0, family="bee"), server.url(2, family=family))
        refused = 0 if case.name != "crashed" else 6 if family == "ferryman" else 5
        assert summary["read"] == case.expected["jobs"]
        assert summary["written"] == case.expected["jobs"] - refused
        assert changed_keys(before, dump(client)) == set()


@each_capture
def test_what_went_to_a_native_keyspace_comes_back_to_bee(server: Server, case: Capture) -> None:
    with server.client() as client, server.client(3) as returned:
        load(case, client)
        migrate(case, server.url(0, family="bee"), server.url(2))
        migrate(case, server.url(2), server.url(3, family="bee"))
        before, after = dump(client), dump(returned)
    if case.name == "crashed":
        return
    for key, entry in before.items():
        if entry.redis_type == "hash" and key.startswith(b"bee:h:jobs:") and b"jid" in entry.value:
            if entry.value[b"status"] == b"running":
                continue
            assert after[key].value == entry.value
        elif key.startswith((b"bee:ss:delayed:", b"bee:ss:expires:", b"bee:l:", b"bee:s:tags:", b"bee:s:dependencies:")):
            assert after[key].value == entry.value
        elif key.startswith(b"bee:ss:queue:"):
            # What a worker had waits again, before the others if it came before them.
            members = {member for member, _ in entry.value}
            assert [item for item in after[key].value if item[0] in members] == entry.value


def test_running_jobs_wait_again_and_their_story_goes_on(server: Server) -> None:
    case = capture("bee", "healthy")
    with server.client() as client, server.client(3) as returned:
        load(case, client)
        summary = migrate(case, server.url(0, family="bee"), server.url(3, family="bee"))
        assert summary["requeued"] == case.expected["by_state"]["active"]
        for job_id, said in case.expected["jobs_by_id"].items():
            if said["state"] == "active":
                fields = returned.hgetall(f"bee:h:jobs:{job_id}")
                assert fields[b"status"] == b"queued"
                assert json.loads(fields[b"history"])[-1]["event"] == "queued"
        audit = ferryman("audit", server.url(3, family="bee"), "--now", str(case.captured_at_ms), "--format", "json")
        assert [line["rule"] for line in audit.lines()] == []
