"""Captured kickq keyspaces carried elsewhere and back by the command line, on real servers."""

from __future__ import annotations

from typing import Any

import pytest
from ferryman.testing.keyspaces import dump

from ...support.captures import Capture, capture, captures, load
from ...support.command import ferryman
from ...support.servers import Server

pytestmark = pytest.mark.in_turn

each_capture = pytest.mark.parametrize("case", captures("kickq"), ids=str)

REFUSED = {
    # Scheduled jobs that have lost their due time, jobs without a state, and an ended one without much of its document.
    ("crashed", "ferryman"): {"KICKQ-11": ["19", "30", "32"], "KICKQ-2": ["48", "49", "50", "51", "52"]},
    ("crashed", "kickq"): {"KICKQ-11": ["19", "30", "32"], "KICKQ-2": ["48", "49", "50", "51", "52"]},
    # A native queue needs a name.
    ("healthy", "ferryman"): {"NATIVE-W2": ["52"]},
}


def migrate(source: str, target: str, *options: str) -> dict[str, Any]:
    """Migrates, verifies, and gives the summary."""
    outcome = ferryman("migrate", source, target, "--format", "json", *options)
    assert outcome.status == 0, outcome.stderr
    verified = ferryman("verify", source, target, "--format", "json")
    assert [line for line in verified.lines() if "field" in line] == []
    return outcome.lines()[-1]


@pytest.mark.parametrize("family", ["ferryman", "kickq"])
@each_capture
def test_a_captured_keyspace_migrates_and_verifies(server: Server, case: Capture, family: str) -> None:
    with server.client() as client:
        load(case, client)
        before = dump(client)
        source = server.url(0, family="kickq", prefix=case.prefix)
        summary = migrate(source, server.url(1, family=family, prefix="new:*"), "--now", str(case.captured_at_ms))
        refused = REFUSED.get((case.name, family), {})
        assert summary["refused"] == refused
        assert summary["read"] == case.expected["jobs"] == summary["written"] + sum(map(len, refused.values()))
        assert dump(client) == before


@pytest.mark.parametrize("name", ["healthy", "custom-prefix", "older-version"])
def test_what_went_to_a_native_keyspace_comes_back_to_kickq(server: Server, name: str) -> None:
    case = capture("kickq", name)
    with server.client() as client, server.client(2) as returned:
        load(case, client)
        as_integer = ("--now", str(case.captured_at_ms))
        there, back = server.url(1), server.url(2, family="kickq", prefix=case.prefix)
        migrate(server.url(0, family="kickq", prefix=case.prefix), there, *as_integer)
        migrate(there, back, *as_integer)
        before, after = dump(client), dump(returned)
        held = {job_id.encode() for job_id, said in case.expected["jobs_by_id"].items() if said["state"] == "processing"}
        unnamed = {job_id.encode() for job_id, said in case.expected["jobs_by_id"].items() if said["queue"] == ""}
        records = f"{case.prefix}:job:".encode()
        for key, entry in before.items():
            if key.startswith(records) and key.removeprefix(records) not in held | unnamed:
                assert after[key].value == entry.value
            elif entry.redis_type == "list" and key != f"{case.prefix}:queue:".encode():
                assert [job_id for job_id in after[key].value if job_id not in held] == entry.value
            elif entry.redis_type == "zset":
                assert after[key].value == [item for item in entry.value if item[0] not in unnamed]
