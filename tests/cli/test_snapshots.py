"""Snapshot files on the command line: damaged ones are refused in one line, unless the user wants them as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from ..support.command import ferryman
from ..support.servers import Server
from ..support.snapshots import saved

DATA = Path(__file__).parents[1] / "data" / "rdb"
FLIPPED = f"ferryman+rdb://{DATA}/flipped-payload.rdb"
READING = [("audit",), ("jobs",), ("queues",), ("detect",), ("jobs", "--format", "json")]


@pytest.mark.parametrize("command", READING, ids=" ".join)
def test_a_file_with_another_checksum_is_damaged(command: tuple[str, ...]) -> None:
    outcome = ferryman(*command, f"{FLIPPED}?family=kue")
    assert outcome.status == 3
    assert "flipped-payload.rdb: damaged somewhere in its 771 bytes" in outcome.error
    assert outcome.stdout == ""


@pytest.mark.parametrize("command", [*READING, ("metrics",)], ids=" ".join)
def test_without_checksum_it_is_read_as_it_is(command: tuple[str, ...]) -> None:
    outcome = ferryman(*command, f"{FLIPPED}?family=kue", "--no-checksum")
    assert outcome.status == 0
    assert outcome.stdout


def test_a_family_is_looked_for_in_it_without_checksum_too() -> None:
    assert ferryman("jobs", f"{FLIPPED}?family=auto").status == 3
    assert ferryman("jobs", f"{FLIPPED}?family=auto", "--no-checksum").status == 0


def test_the_metrics_of_a_damaged_file_say_that_it_can_not_be_read() -> None:
    assert "ferryman_up 0.0" in ferryman("metrics", f"{FLIPPED}?family=kue").stdout


def test_a_migration_writes_nothing_of_a_damaged_file(server: Server, client: redis.Redis) -> None:
    source, target = f"{FLIPPED}?family=kue", server.url(0)
    assert ferryman("migrate", source, target).status == 3
    assert client.dbsize() == 0
    assert ferryman("migrate", source, target, "--no-checksum").status == 0
    assert ferryman("verify", source, target).status == 3
    assert ferryman("verify", source, target, "--no-checksum").status == 0


def test_a_server_has_no_checksum_to_do_without(server: Server) -> None:
    outcome = ferryman("queues", server.url(0), "--no-checksum")
    assert outcome.status == 2
    assert "--no-checksum is for snapshot files (ferryman+rdb://); this is a server" in outcome.error


@pytest.mark.parametrize("name", ["three-kue-jobs.rdb", "three-kue-jobs-eofmark.rdb", "valkey9-field-ttl.rdb"])
def test_files_of_all_servers_have_their_jobs(name: str) -> None:
    outcome = ferryman("jobs", f"ferryman+rdb://{DATA}/{name}?family=kue", "--format", "json")
    assert outcome.status == 0
    assert [(job["id"], job["state"]) for job in outcome.lines()] == [("1", "waiting"), ("2", "waiting"), ("3", "waiting")]


def test_commands_behind_a_snapshot_are_named() -> None:
    outcome = ferryman("audit", f"ferryman+rdb://{DATA}/preamble.aof?family=kue")
    assert outcome.status == 2
    assert (
        "the commands that follow its snapshot, from byte 717 of 767 on (SELECT, SET …), are not replayed. Run BGSAVE"
        in outcome.error
    )


def test_a_file_of_streams_alone_says_so(server: Server, client: redis.Redis, tmp_path: Path) -> None:
    client.xadd("events", {"a": "b"})
    outcome = ferryman("audit", f"ferryman+rdb://{saved(client, server, tmp_path)}?family=auto")
    assert outcome.status == 2
    assert outcome.error.endswith("(no key could be read; streams and modules never are); check the database number")
