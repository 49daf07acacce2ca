"""What users and strangers get wrong: one clear line and an exit status, or a finding that names the key. Never a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from ferryman.schema.connection.call import run
from ferryman.schema.fact import Entry
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.testing.keyspaces import dump

from ..support.command import ferryman, ferryman_process
from ..support.servers import Server, free_port

pytestmark = pytest.mark.in_turn

PASSWORD = "s3kr:t/pass"
QUOTED = "s3kr%3At%2Fpass"

READING = [("audit",), ("jobs",), ("queues",), ("jobs", "--format", "json"), ("audit", "--format", "json")]


@pytest.fixture
def locked(server: Server) -> Iterator[Server]:
    """A server that wants a password."""
    with server.client() as client:
        client.config_set("requirepass", PASSWORD)
        yield server
        client.config_set("requirepass", "")


@pytest.mark.parametrize("command", READING)
@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (f"redis://:{QUOTED}@localhost/0", "scheme 'redis' is no ferryman URL"),
        (f"ferryman://:{QUOTED}@localhost/0?colour=red", "unknown parameter 'colour'"),
        (f"ferryman://:{QUOTED}@localhost/0?family=rabbit", "unknown family 'rabbit'; installed are: "),
        (f"ferryman://:{QUOTED}@localhost:port/0", "port must be a number"),
        (f"ferryman://:{QUOTED}@localhost/zero", "must be a database number"),
        (f"ferryman://:{QUOTED}@localhost/0?lease=never", "parameter 'lease' is not a number"),
        (f"ferryman://:{PASSWORD}@localhost/0", "port must be a number"),
        ("localhost:6379", "is no ferryman URL"),
        ("", "is no ferryman URL"),
    ],
)
def test_a_url_that_makes_no_sense_is_wrong_usage(command: tuple[str, ...], url: str, reason: str) -> None:
    outcome = ferryman(*command, url)
    assert outcome.status == 2
    assert reason in outcome.error
    assert "s3kr" not in outcome.stderr
    assert outcome.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("sail",),
        ("audit",),
        ("jobs", "ferryman://localhost/0", "--state", "sleeping"),
        ("jobs", "ferryman://localhost/0", "--limit", "-1"),
        ("audit", "ferryman://localhost/0", "--engine", "steam"),
        ("audit", "ferryman://localhost/0", "--now", "yesterday"),
        ("migrate", "ferryman://localhost/0"),
        ("verify", "ferryman://localhost/0", "ferryman://localhost/1", "ferryman://localhost/2"),
        ("queues", "ferryman://localhost/0", "--colour"),
    ],
)
def test_a_wrong_command_line_is_one_line_that_says_where_help_is(arguments: tuple[str, ...]) -> None:
    outcome = ferryman(*arguments)
    assert outcome.status == 2
    assert "--help)" in outcome.error


@pytest.mark.parametrize("command", READING)
def test_a_wrong_password_is_one_line_without_the_password(locked: Server, command: tuple[str, ...]) -> None:
    url = f"ferryman://:wr0ng@{locked.host}:{locked.port}/0?family=kue"
    outcome = ferryman(*command, url)
    assert outcome.status == 3
    assert f"{locked.host}:{locked.port}" in outcome.error
    assert "credentials" in outcome.error
    assert "wr0ng" not in outcome.stderr


def test_the_right_password_opens(locked: Server) -> None:
    outcome = ferryman("queues", f"ferryman://:{QUOTED}@{locked.host}:{locked.port}/0?family=kue")
    assert outcome.status == 2
    assert "no kue keys under prefix 'q'" in outcome.error
    assert "s3kr" not in outcome.stderr


@pytest.mark.parametrize("command", READING)
def test_a_server_that_is_down_is_one_line(command: tuple[str, ...]) -> None:
    outcome = ferryman(*command, f"ferryman://127.0.0.1:{free_port()}/0?family=kue")
    assert outcome.status == 3
    assert "can't be reached" in outcome.error
    assert "is the server running?" in outcome.error


def test_a_host_that_does_not_exist_is_one_line() -> None:
    outcome = ferryman("audit", "ferryman://no-such-host.invalid/0?family=kue")
    assert outcome.status == 3
    assert "no-such-host.invalid" in outcome.error


def test_a_database_that_the_server_does_not_have_is_one_line(server: Server) -> None:
    outcome = ferryman("audit", server.url(99_999, family="kue"))
    assert outcome.status == 3
    assert "99999" in outcome.error


def test_a_socket_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    outcome = ferryman("audit", f"ferryman+unix://{tmp_path}/redis.sock?family=kue")
    assert outcome.status == 3
    assert "redis.sock" in outcome.error


@pytest.mark.parametrize("command", READING)
def test_a_keyspace_that_is_not_there_is_named_with_what_is_there_instead(
    server: Server, client: redis.Redis, command: tuple[str, ...]
) -> None:
    client.set("q2:job:1", "of another prefix")
    outcome = ferryman(*command, server.url(family="kue"))
    assert outcome.status == 2
    assert "no kue keys under prefix 'q' in database 0 (found 1 other keys, such as q2:job:1)" in outcome.error
    assert outcome.stdout == ""


def test_an_empty_database_is_named_as_such(server: Server) -> None:
    outcome = ferryman("migrate", server.url(3, family="kue"), server.url(4, family="kue", prefix="new"))
    assert outcome.status == 2
    assert "in database 3, which is empty" in outcome.error
    with server.client(4) as target:
        assert target.keys() == []


def test_the_same_keyspace_twice_is_wrong_usage(server: Server) -> None:
    for command in ("migrate", "verify"):
        outcome = ferryman(command, server.url(family="kue"), server.url(family="kue"))
        assert outcome.status == 2
        assert "the same keyspace" in outcome.error


def test_an_unexpected_error_is_one_line_with_a_way_to_the_traceback(server: Server, client: redis.Redis, tmp_path: Path) -> None:
    """A family that somebody else ships may have faults of its own."""
    (tmp_path / "faulty.py").write_text(
        "from ferryman.compat.kue.family import Kue\n"
        "class Faulty(Kue):\n"
        "    name = 'faulty'\n"
        "    def facts(self, entry, prefix):\n"
        "        raise ZeroDivisionError('a fault')\n"
        "FAMILY = Faulty()\n"
    )
    metadata = tmp_path / "faulty-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[ferryman.families]\nfaulty = faulty:FAMILY\n")
    client.set("q:ids", "1")
    outcome = ferryman_process("audit", server.url(family="faulty"), PYTHONPATH=str(tmp_path), FERRYMAN_DEBUG="")
    assert outcome.status == 3
    assert "unexpected ZeroDivisionError" in outcome.error
    assert "FERRYMAN_DEBUG=1" in outcome.error
    debugged = ferryman_process("audit", server.url(family="faulty"), PYTHONPATH=str(tmp_path), FERRYMAN_DEBUG="1")
    assert "Traceback" in debugged.stderr
    assert "a fault" in debugged.stderr


def inject_faults(client: redis.Redis) -> None:
    """A kue keyspace in which nothing is right."""
    client.set("q:ids", b"\xff not a number")
    client.hset("q:job:types", "a", "hash, not set")
    client.set("q:job:1", "a string, not a hash")
    client.hset("q:job:2", mapping={"max_attempts": "1"})
    client.hset("q:job:3", mapping={"type": "mail", "state": "inactive", "priority": "0", "data": "{not json"})
    client.hset(b"q:job:\xff\xfe", mapping={b"type": b"\xff", b"state": b"inactive", b"\x00": b"\xff", b"data": b"\xff\xfe"})
    client.hset("q:job:5", mapping={"type": "mail", "state": "paused", "priority": "1e999", "data": "[" * 100_000})
    client.hset("q:job:6", mapping={"type": "[red]markup[/]\x1b[31m", "state": "failed", "priority": "nan", "data": "{}"})
    client.hset("q:job:7", mapping={"type": "mail", "state": "complete", "created_at": "9" * 400, "backoff": "while(1);"})
    client.zadd("q:jobs", {"01|1": 0, b"\xff": float("inf"), "99|": float("-inf"), "": 1})
    client.sadd("q:jobs:inactive", "01|3")
    client.rpush("q:jobs:mail:inactive", "01|3")
    client.zadd("q:mail:jobs", {"1": 1})
    client.xadd("q:job:8", {"a": "b"})
    client.hset("q:job:3:log", "a", "b")
    client.set("promotion:lock", b"\xff")
    client.set(b"q:\xff\xfe:jobs", b"\x00")


@pytest.mark.parametrize("command", READING)
def test_damage_of_every_kind_is_read_without_an_error(server: Server, client: redis.Redis, command: tuple[str, ...]) -> None:
    inject_faults(client)
    before = dump(client)
    outcome = ferryman(*command, server.url(family="kue"))
    assert outcome.status in (0, 1)
    assert outcome.stderr == ""
    assert "\x1b" not in outcome.stdout
    if "json" in command:
        assert outcome.lines()
    assert dump(client) == before


def test_findings_name_the_keys_of_the_wrong_type(server: Server, client: redis.Redis) -> None:
    inject_faults(client)
    outcome = ferryman("audit", server.url(family="kue"), "--format", "json")
    assert outcome.status == 1
    assert {"q:job:1", "q:jobs:inactive", "q:jobs:mail:inactive", "q:mail:jobs", "q:job:types"} <= {
        finding["key"] for finding in outcome.lines() if isinstance(finding["key"], str)
    }


def test_damaged_jobs_are_never_half_moved(server: Server, client: redis.Redis) -> None:
    inject_faults(client)
    before = dump(client)
    url, target = server.url(family="kue"), server.url(1, family="kue", prefix="new")
    outcome = ferryman("migrate", url, target, "--format", "json")
    assert outcome.status == 0
    *findings, summary = outcome.lines()
    assert summary["read"] == summary["written"] + summary["skipped"]
    assert summary["findings"] == len(findings)
    assert "3" in {job_id for ids in summary["refused"].values() for job_id in ids}
    assert dump(client) == before
    compared = ferryman("verify", url, target, "--format", "json")
    assert (compared.status, compared.lines()[0]["differences"]) == (0, 0)
    with server.client(1) as there:
        assert not there.exists("new:job:3", "new:job:2", "new:job:1")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("requeue",), "say which jobs to requeue: ids, --queue"),
        (("delete", "--queue", "mail"), "say by --state which jobs to delete"),
        (("delete", "id", "--state", "failed"), "give ids, or say which jobs"),
        (("move", "id"), "move needs --to"),
        (("move", "id", "--to", "nowhere"), "queue 'nowhere': there is no such queue to move jobs to"),
        (("move", "id", "--to", "mail"), "name another queue to move them to"),
        (("cancel", "id", "--to", "mail"), "--to is for move only"),
        (("reprioritise", "id", "--priority", "1.5"), "priority 1.5 is not an integer"),
        (("reprioritise", "id", "--priority", "256"), "priority 256 is not between -256 and 255"),
        (("reprioritise", "id", "--priority", "nan"), "priority nan is not an integer"),
        (("edit", "id", "--payload", "no JSON"), "the new payload is not: write it as JSON"),
        (("edit", "id", "--payload", "[1]"), "a Celery task, whose payload is [args, kwargs, options]"),
        (("edit", "id", "--payload", "@/no/such/file"), "the file '/no/such/file' can't be read"),
        (("requeue", "--state", "waiting"), "requeue does nothing to waiting jobs; it is for these: failed, cancelled"),
        (("requeue", "--queue", "mail", "--reason", ""), "an empty --text, --reason or --task fits every job"),
        (("cancel", "--older-than", "an hour", "--yes"), "'an hour' is no length of time"),
        (("cancel", "--all"), "say --yes to change many jobs without being asked, or --dry-run to count them"),
        (("shred", "id"), "'shred' is not one of"),
        (("cancel", "id", "--audit-log", "/no/such/folder/log"), "the audit log /no/such/folder/log can't be written"),
    ],
)
def test_steering_that_makes_no_sense_is_wrong_usage_and_changes_nothing(
    server: Server, client: redis.Redis, arguments: tuple[str, ...], reason: str
) -> None:
    scripts = QueueScripts()
    run(client, scripts.declare("mail", {}))
    client.sadd("ferryman:queues", "mail")
    frame = b'{"content-type": "application/json", "headers": {"task": "send"}}\n[[], {}, {}]'
    run(client, scripts.publish("mail", "p", [Publication("id", frame)]))
    before = without_history(client)
    outcome = ferryman("steer", server.url(), *arguments)
    assert outcome.status == 2
    assert reason in outcome.error
    assert outcome.stdout == ""
    assert without_history(client) == before


def without_history(client: redis.Redis) -> dict[bytes, Entry]:
    """All keys but those whose time to live runs."""
    return {key: entry for key, entry in dump(client).items() if b"}:history" not in key}


def test_a_snapshot_can_not_be_steered(tmp_path: Path) -> None:
    outcome = ferryman("pause", f"ferryman+rdb://{tmp_path}/dump.rdb", "mail")
    assert outcome.status == 2
    assert "a snapshot file can't be steered" in outcome.error


@pytest.mark.parametrize("command", [("pause", "mail"), ("drain", "mail", "--yes"), ("steer", "cancel", "--all", "--yes")])
def test_steering_a_server_that_is_down_is_one_line(command: tuple[str, ...]) -> None:
    name, *arguments = command
    outcome = ferryman(name, f"ferryman://127.0.0.1:{free_port()}/0", *arguments)
    assert outcome.status == 3
    assert "can't be reached" in outcome.error
