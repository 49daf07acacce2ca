"""``ferryman pause``, ``resume``, ``drain`` and ``steer``, and all of them through ``celery -A app ferryman``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import redis
from ferryman.schema.connection.call import run
from ferryman.schema.native import codec
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from ..support.command import ferryman
from ..support.servers import Server
from ..support.workers import celery

pytestmark = pytest.mark.in_turn

scripts = QueueScripts()
LATER = 4_000_000_000_000


def frame(task: str, number: int) -> bytes:
    headers = {"id": f"{task}-{number}", "task": task}
    head = {"headers": headers, "content-type": "application/json", "content-encoding": "utf-8", "properties": {}}
    return codec.encode(head, b"[[%d], {}, {}]" % number)


@pytest.fixture
def queues(client: redis.Redis) -> redis.Redis:
    """Two queues, each with three jobs that wait, two scheduled ones and a dead one; and an empty one."""
    for queue in ("mail", "video"):
        run(client, scripts.declare(queue, {}))
        client.sadd("ferryman:queues", queue)
        jobs = [
            Publication(f"{queue}-{n}", frame("send" if n else "check", n), due_ms=LATER if n > 3 else None) for n in range(6)
        ]
        run(client, scripts.publish(queue, queue, jobs))
        (taken,) = run(client, scripts.take(queue, "ann", 1, 30_000)).jobs
        run(client, scripts.reject(queue, "ann", taken.id, "rejected", "Timeout: no answer"))
    run(client, scripts.declare("bulk", {}))
    client.sadd("ferryman:queues", "bulk")
    return client


def in_json(server: Server, command: str, *arguments: str) -> list[dict[str, Any]]:
    return ferryman(command, server.url(), *arguments, "--format", "json").lines()


def places(client: redis.Redis, queue: str) -> dict[str, int]:
    size = run(client, scripts.size(queue))
    return {"waiting": size.waiting, "scheduled": size.scheduled, "dead": size.dead}


def test_a_paused_queue_gives_nothing_until_it_is_resumed(server: Server, queues: redis.Redis) -> None:
    assert in_json(server, "pause", "mail", "video") == [
        {"queue": queue, "action": "pause", "changed": True} for queue in ("mail", "video")
    ]
    assert not run(queues, scripts.take("mail", "bob", 10, 30_000)).jobs
    assert {line["queue"] for line in ferryman("queues", server.url(), "--format", "json").lines() if line["paused"]} == {
        "mail",
        "video",
    }
    assert "paused" in ferryman("queues", server.url()).stdout
    outcome = ferryman("pause", server.url(), "mail")
    assert (outcome.status, outcome.stdout) == (0, "queue mail: paused already\n")
    assert ferryman("resume", server.url(), "mail").stdout == "queue mail: resumed\n"
    assert len(run(queues, scripts.take("mail", "bob", 10, 30_000)).jobs) == 3
    assert ferryman("resume", server.url(), "mail").stdout == "queue mail: was not paused\n"


@pytest.mark.usefixtures("queues")
@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_queue_that_is_not_there_can_not_be_paused(server: Server, command: str) -> None:
    outcome = ferryman(command, server.url(), "mial")
    assert outcome.status == 2
    assert "queue 'mial': there is no such queue" in outcome.error


def test_a_drained_queue_keeps_its_dead_letters(server: Server, queues: redis.Redis) -> None:
    assert ferryman("drain", server.url(), "mail", "--dry-run").stdout == "queue mail: 5 to delete\n"
    assert in_json(server, "drain", "mail", "--yes") == [
        {"queue": "mail", "action": "drain", "dry_run": False, "done": 5, "left": 0}
    ]
    assert places(queues, "mail") == {"waiting": 0, "scheduled": 0, "dead": 1}
    assert places(queues, "video") == {"waiting": 3, "scheduled": 2, "dead": 1}


def test_jobs_are_named_by_their_ids(server: Server, queues: redis.Redis) -> None:
    assert in_json(server, "steer", "promote", "mail-4") == [
        {"queue": "mail", "id": "mail-4", "action": "promote", "dry_run": False, "outcome": "done"}
    ]
    assert ferryman("steer", server.url(), "cancel", "mail-4", "mail-1").stdout == (
        "queue mail: mail-4 cancelled\nqueue mail: mail-1 cancelled\n"
    )
    assert places(queues, "mail") == {"waiting": 2, "scheduled": 1, "dead": 1}


def test_what_can_not_be_done_is_said_and_is_exit_status_1(server: Server, queues: redis.Redis) -> None:
    run(queues, scripts.take("mail", "bob", 1, 30_000))
    outcome = ferryman("steer", server.url(), "delete", "mail-1", "nobody", "mail-2")
    assert outcome.status == 1
    assert outcome.stdout == "queue mail: mail-2 deleted\n"
    assert outcome.stderr.splitlines() == [
        "not deleted: mail-1 of queue mail, a worker has it",
        "not deleted: nobody, there is no such job",
    ]
    refused = ferryman("steer", server.url(), "requeue", "mail-3")
    assert (refused.status, refused.stderr) == (1, "not requeued: mail-3 of queue mail, its state does not fit\n")


def test_all_that_match_are_acted_on_in_every_queue(server: Server, queues: redis.Redis) -> None:
    outcome = ferryman("steer", server.url(), "requeue", "--reason", "Timeout", "--yes")
    assert outcome.stdout.splitlines() == [
        "queue bulk: no failed job fits",
        "queue bulk: no cancelled job fits",
        "queue mail: 1 failed requeued",
        "queue mail: no cancelled job fits",
        "queue video: 1 failed requeued",
        "queue video: no cancelled job fits",
    ]
    assert places(queues, "mail")["dead"] == places(queues, "video")["dead"] == 0


def test_jobs_move_by_task_and_the_count_comes_before_them(server: Server, queues: redis.Redis) -> None:
    by_task = ("move", "--queue", "mail", "--task", "send", "--state", "waiting", "--to", "bulk")
    (counted,) = in_json(server, "steer", *by_task, "--dry-run")
    assert (counted["done"], counted["dry_run"]) == (3, True)
    assert places(queues, "bulk")["waiting"] == 0
    (moved,) = in_json(server, "steer", *by_task, "--yes")
    assert (moved["done"], moved["left"]) == (3, 0)
    assert places(queues, "bulk") == {"waiting": 3, "scheduled": 0, "dead": 0}
    assert places(queues, "mail") == {"waiting": 0, "scheduled": 2, "dead": 1}


def test_a_payload_comes_from_the_command_line_or_from_a_file(server: Server, queues: redis.Redis, tmp_path: Path) -> None:
    ferryman("steer", server.url(), "edit", "mail-1", "--payload", '[["ann"],{},{}]')
    assert queues.hget(scripts.keys("mail").job("mail-1"), "message").endswith(b'\n[["ann"],{},{}]')
    (tmp_path / "payload").write_bytes(b'[["from a file"],{},{}]')
    ferryman("steer", server.url(), "edit", "mail-1", "--payload", f"@{tmp_path / 'payload'}")
    assert queues.hget(scripts.keys("mail").job("mail-1"), "message").endswith(b'\n[["from a file"],{},{}]')


def test_priorities_are_changed_by_either_spelling(server: Server, queues: redis.Redis) -> None:
    ferryman("steer", server.url(), "reprioritize", "mail-3", "--priority", "-1")
    (first, *_) = run(queues, scripts.take("mail", "bob", 10, 30_000)).jobs
    assert (first.id, first.priority) == ("mail-3", -1)


@pytest.mark.usefixtures("queues")
def test_each_action_leaves_a_line_in_the_audit_log(server: Server, tmp_path: Path) -> None:
    log = tmp_path / "actions.jsonl"
    ferryman("pause", server.url(), "mail", "--audit-log", str(log))
    ferryman("steer", server.url(), "edit", "mail-1", "--payload", '[["secret"],{},{}]', "--audit-log", str(log))
    ferryman("steer", server.url(), "delete", "--state", "failed", "--text", "[0]", "--yes", "--audit-log", str(log))
    ferryman("pause", server.url(), "nowhere", "--audit-log", str(log))
    paused, edited, *deleted, failed = map(json.loads, log.read_text().splitlines())
    assert (paused["action"], paused["queue"], paused["outcome"]) == ("pause", "mail", "done")
    assert paused["by"]
    assert paused["at_ms"] > 0
    assert (edited["job_id"], edited["outcome"]) == ("mail-1", "done")
    assert [(line["queue"], line["chosen"], line["done"]) for line in deleted] == [
        ("bulk", {"text": "[0]"}, 0),
        ("mail", {"text": "[0]"}, 1),
        ("video", {"text": "[0]"}, 1),
    ]
    assert "there is no such queue" in failed["outcome"]
    assert "secret" not in log.read_text()


@pytest.mark.usefixtures("queues")
def test_the_commands_work_for_the_broker_of_an_app(server: Server) -> None:
    assert celery(server, "ferryman", "pause", "mail").stdout == "queue mail: paused\n"
    assert celery(server, "ferryman", "resume", "mail").stdout == "queue mail: resumed\n"
    assert celery(server, "ferryman", "steer", "cancel", "mail-1").stdout == "queue mail: mail-1 cancelled\n"
    assert celery(server, "ferryman", "drain", "video", "--yes").stdout == "queue video: 5 deleted\n"
