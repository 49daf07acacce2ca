"""The contracts of what commands print: JSON lines that scripts rely on, and tables for people."""

from __future__ import annotations

import json
import subprocess
from typing import Any
from urllib.parse import quote

import pytest
import redis
from ferryman.schema.connection.call import run
from ferryman.schema.job import JOB_FIELDS
from ferryman.schema.native.codec import encode
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from ..support.captures import Capture, capture, captures, load
from ..support.command import PROGRAM, ferryman, ferryman_process
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

FINDING_FIELDS = ["rule", "severity", "job_id", "key", "queue", "detail", "repair"]


@pytest.fixture(params=captures("kue"), ids=str)
def kue(request: pytest.FixtureRequest, client: redis.Redis) -> Capture:
    """Each capture, loaded into database 0."""
    load(request.param, client)
    loaded: Capture = request.param
    return loaded


def lines(server: Server, loaded: Capture, *arguments: str) -> list[dict[str, Any]]:
    """The JSON lines that a reading command prints about a capture."""
    command, *options = arguments
    url = server.url(family=loaded.system, prefix=quote(loaded.prefix))
    return ferryman(command, url, "--format", "json", "--now", str(loaded.captured_at_ms), *options).lines()


def test_a_line_of_jobs_has_the_canonical_fields_in_their_order(server: Server, kue: Capture) -> None:
    found = lines(server, kue, "jobs")
    # Hashes without a type are shown too, though kue's own API deletes them when it sees them.
    assert sum(job["queue"] != "" for job in found) == kue.expected["jobs"]
    assert all(list(job) == list(JOB_FIELDS) for job in found)


def test_jobs_can_be_asked_for_by_queue_and_state(server: Server, kue: Capture) -> None:
    everything = lines(server, kue, "jobs")
    for queue in {job["queue"] for job in everything}:
        assert lines(server, kue, "jobs", "--queue", queue) == [job for job in everything if job["queue"] == queue]
    for state in {job["state"] for job in everything}:
        assert lines(server, kue, "jobs", "--state", state) == [job for job in everything if job["state"] == state]
    assert lines(server, kue, "jobs", "--limit", "2") == everything[:2]
    assert lines(server, kue, "jobs", "--queue", "no such queue") == []


def test_queues_agree_with_the_jobs_of_which_those_that_are_due_wait(server: Server, kue: Capture) -> None:
    jobs = lines(server, kue, "jobs")
    due = [job for job in jobs if job["state"] == "scheduled" and job["due_at"] <= kue.captured_at_ms]
    for job in due:
        job["state"] = "waiting"
    for status in lines(server, kue, "queues"):
        own = [job for job in jobs if job["queue"] == status["queue"]]
        for state in ("scheduled", "waiting", "active", "completed", "failed", "unknown"):
            assert status[state] == sum(job["state"] == state for job in own)
        since = [max(job["created_at"], job["due_at"] or 0) for job in own if job["state"] == "waiting" and job["created_at"]]
        ages = [max(0, kue.captured_at_ms - moment) for moment in since]
        assert status["oldest_ms"] == max(ages, default=None)
        assert sum(status["priorities"].values()) == status["waiting"]
        for priority, number in status["priorities"].items():
            waiting = [job["priority"] for job in own if job["state"] == "waiting"]
            assert sum(each is None if priority == "" else str(each) == priority for each in waiting) == number


def test_a_finding_is_one_line_with_its_fields_and_decides_the_exit_status(server: Server, kue: Capture) -> None:
    url = server.url(family="kue", prefix=quote(kue.prefix))
    outcome = ferryman("audit", url, "--format", "json", "--now", str(kue.captured_at_ms))
    findings = outcome.lines()
    assert all(list(finding) == FINDING_FIELDS for finding in findings)
    serious = [finding for finding in findings if finding["severity"] != "info"]
    assert outcome.status == (1 if serious else 0)
    table = ferryman("audit", url, "--now", str(kue.captured_at_ms))
    assert table.status == outcome.status
    assert table.stderr == ""
    for rule in {finding["rule"] for finding in findings}:
        assert rule in table.stdout


def test_the_known_faults_of_the_crashed_capture_are_found(server: Server, client: redis.Redis) -> None:
    crashed = capture("kue", "crashed")
    load(crashed, client)
    found = {finding["rule"] for finding in lines(server, crashed, "audit")}
    assert {str(fault["rule"]) for fault in crashed.expected["damage"] if fault.get("rule")} <= found


def test_payloads_stand_as_what_they_are(server: Server, client: redis.Redis) -> None:
    for number, data in enumerate([b'{"a":[1,2.5,null]}', b"plain text", b"\xff\xfe", b'"text"', b"[1"], 1):
        client.hset(f"q:job:{number}", mapping={"type": "mail", "state": "failed", "data": data})
    found = ferryman("jobs", server.url(family="kue"), "--format", "json").lines()
    assert [job["payload"] for job in found] == [{"a": [1, 2.5, None]}, "plain text", {"b64": "//4="}, "text", "[1"]


def test_names_of_any_bytes_are_valid_json_and_harmless_in_tables(server: Server, client: redis.Redis) -> None:
    names = [b"\xff\xfe", b"\x1b[31mred", b"[bold]x[/bold]", "\u202eevil".encode(), b"line\nbreak", "\x9b2J a\u2028b".encode()]
    for number, name in enumerate(names, 1):
        client.hset(f"q:job:{number}", mapping={b"type": name, b"state": b"failed", b"data": name, b"error": name})
    url = server.url(family="kue")
    queues = ferryman("queues", url, "--format", "json").lines()
    assert {json.dumps(status["queue"]) for status in queues} >= {'{"b64": "//4="}', '"\\u001b[31mred"', '"[bold]x[/bold]"'}
    for command in ("jobs", "queues", "audit"):
        for options in ((), ("--format", "json")):
            shown = ferryman(command, url, *options).stdout
            assert all(line.isprintable() for line in shown.split("\n")), command
    assert "[bold]x[/bold]" in ferryman("queues", url).stdout


def test_a_terminal_that_knows_only_ascii_shows_escapes(server: Server, client: redis.Redis) -> None:
    load(capture("kue", "healthy"), client)
    ascii_only = {"PYTHONIOENCODING": "ascii"}
    table = ferryman_process("queues", server.url(family="kue"), **ascii_only)
    assert (table.status, table.stderr) == (0, "")
    assert r"\xfcberweisung" in table.stdout
    machine = ferryman_process("queues", server.url(family="kue"), "--format", "json", **ascii_only)
    assert "überweisung ✓" in {status["queue"] for status in machine.lines()}


def test_a_long_list_is_cut_in_a_table_and_says_so(server: Server, client: redis.Redis) -> None:
    for number in range(1, 121):
        client.hset(f"q:job:{number}", mapping={"type": "mail", "state": "failed", "data": "{}"})
    url = server.url(family="kue")
    assert "… and 20 more jobs; --limit 0 shows all." in ferryman("jobs", url).stdout
    assert "more jobs" not in ferryman("jobs", url, "--limit", "0").stdout
    assert len(ferryman("jobs", url, "--format", "json").lines()) == 120


def test_a_reader_that_goes_away_is_no_error(server: Server, client: redis.Redis) -> None:
    """As in ``ferryman jobs … --format json | head -1``."""
    for number in range(1, 2001):
        client.hset(f"q:job:{number}", mapping={"type": "mail", "state": "failed", "data": '"' + "x" * 1000 + '"'})
    command = [*PROGRAM, "jobs", server.url(family="kue"), "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as listing:
        assert listing.stdout is not None
        assert listing.stderr is not None
        assert json.loads(listing.stdout.readline())["id"] == "1"
        listing.stdout.close()
        assert listing.stderr.read() == b""


@pytest.mark.parametrize("options", [(), ("--format", "json")])
def test_nothing_but_the_result_is_printed_where_nobody_watches(
    server: Server, client: redis.Redis, options: tuple[str, ...]
) -> None:
    """No progress bar and no colour in a pipe."""
    load(capture("kue", "healthy"), client)
    outcome = ferryman_process("migrate", server.url(family="kue"), server.url(1, family="kue", prefix="new"), *options)
    assert (outcome.status, outcome.stderr) == (0, "")
    assert "\x1b" not in outcome.stdout


def test_the_moment_decides_what_is_late(server: Server, client: redis.Redis) -> None:
    healthy = capture("kue", "healthy")
    load(healthy, client)
    url = server.url(family="kue")
    then = ferryman("audit", url, "--format", "json", "--now", str(healthy.captured_at_ms)).lines()
    much_later = ferryman("audit", url, "--format", "json", "--now", str(healthy.captured_at_ms + 10**12)).lines()
    assert "KUE-14" not in {finding["rule"] for finding in then}
    assert "KUE-14" in {finding["rule"] for finding in much_later}


def test_a_living_keyspace_shows_its_consumers_and_its_empty_queues(server: Server, client: redis.Redis) -> None:
    scripts = QueueScripts("ferryman")
    for queue in ("busy", "empty"):
        client.sadd("ferryman:queues", queue)
        run(client, scripts.declare(queue, {}))
    message = encode({"content-type": "application/json", "content-encoding": "utf-8", "headers": {}, "properties": {}}, b"{}")
    run(client, scripts.publish("busy", "p", [Publication(f"p-{number}", message) for number in range(3)]))
    run(client, scripts.take("busy", "worker", 1, 60_000))
    busy, empty = ferryman("queues", server.url(), "--format", "json").lines()
    assert (busy["queue"], busy["waiting"], busy["active"], busy["consumers"]) == ("busy", 2, 1, 1)
    assert (empty["queue"], empty["waiting"], empty["consumers"]) == ("empty", 0, 0)
    jobs = ferryman("jobs", server.url(), "--format", "json").lines()
    assert [job["state"] for job in jobs] == ["waiting", "waiting", "active"]
