"""``ferryman dead`` and ``ferryman cancel``, and both through ``celery -A app ferryman``."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from ferryman.schema.connection.call import run
from ferryman.schema.native import codec
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from ..support.command import ferryman
from ..support.servers import Server
from ..support.workers import celery, send

pytestmark = pytest.mark.in_turn

scripts = QueueScripts()
NOTE = "tests.support.tasks.note"


def frame(task: str, number: int) -> bytes:
    headers = {"id": f"{task}-{number}", "task": task}
    return codec.encode({"headers": headers, "content-type": "application/json", "properties": {}}, b"[[%d], {}, {}]" % number)


@pytest.fixture
def graves(client: redis.Redis) -> redis.Redis:
    """Two queues with three dead letters each: two rejected jobs of one task, and one of another that has expired."""
    for queue in ("mail", "video"):
        run(client, scripts.declare(queue, {"x-dead-letter-exchange": "nowhere"} if queue == "video" else {}))
        client.sadd("ferryman:queues", queue)
        jobs = [Publication(f"p-{n}", frame("send" if n else "check", n), ttl_ms=None if n else 0) for n in range(3)]
        run(client, scripts.publish(queue, "p", jobs))
        for job in run(client, scripts.take(queue, "ann", 3, 30_000)).jobs:
            run(client, scripts.reject(queue, "ann", job.id, "rejected", "no such\x1b[31m mailbox"))
    return client


def in_json(server: Server, *arguments: str) -> list[dict[str, Any]]:
    return ferryman("dead", server.url(), *arguments, "--format", "json").lines()


@pytest.mark.usefixtures("graves")
def test_dead_letters_are_listed_as_jobs_with_their_reason(server: Server) -> None:
    found = in_json(server)
    assert [(line["queue"], line["id"], line["reason"], line["name"]) for line in found] == [
        (queue, job, reason, task)
        for queue in ("mail", "video")
        for job, reason, task in (("p-0", "expired", "check"), ("p-1", "rejected", "send"), ("p-2", "rejected", "send"))
    ]
    assert found[1]["attempts"] == 1
    assert found[1]["payload"] == [[1], {}, {}]
    assert found[1]["finished_at"] >= found[1]["created_at"]


@pytest.mark.usefixtures("graves")
def test_the_table_groups_those_that_died_alike(server: Server) -> None:
    outcome = ferryman("dead", server.url(), "--queue", "mail")
    assert outcome.status == 0
    (line,) = [line for line in outcome.stdout.splitlines() if "rejected" in line]
    assert line.split()[:4] == ["mail", "rejected", "send", "2"]
    assert "\x1b" not in outcome.stdout


def test_letters_are_put_back_by_what_they_have_in_common(server: Server, graves: redis.Redis) -> None:
    assert in_json(server, "requeue", "--queue", "mail", "--reason", "rejected", "--task", "send") == [
        {"queue": "mail", "action": "requeue", "number": 2}
    ]
    assert graves.zrange("ferryman:{mail}:waiting", 0, -1) == [b"p-1", b"p-2"]
    assert graves.zcard("ferryman:{mail}:dead") == 1
    assert graves.zcard("ferryman:{video}:dead") == 3
    assert ferryman("dead", server.url(), "requeue", "--reason", "rejected").stdout == "queue video: 2 put back\n"
    assert graves.zrange("ferryman:{video}:outbox", 0, -1) == [b"p-0"]


def test_letters_are_deleted_by_id_or_all_but_never_by_oversight(server: Server, graves: redis.Redis) -> None:
    refused = ferryman("dead", server.url(), "delete")
    assert (refused.status, refused.error) == (
        2,
        "ferryman: say which dead letters to delete: ids, --queue, --reason, --task, or --all",
    )
    assert ferryman("dead", server.url(), "delete", "p-1", "--queue", "mail").stdout == "queue mail: 1 deleted\n"
    assert graves.zrange("ferryman:{mail}:dead", 0, -1) == [b"p-0", b"p-2"]
    in_json(server, "delete", "--all")
    assert not graves.exists("ferryman:{mail}:dead", "ferryman:{video}:dead", "ferryman:{video}:outbox")
    assert ferryman("dead", server.url(), "requeue", "--all").stdout == "No dead letters fit.\n"


def test_long_lists_are_read_page_by_page(server: Server, client: redis.Redis) -> None:
    run(client, scripts.declare("q", {"x-max-length": 1}))
    client.sadd("ferryman:queues", "q")
    run(client, scripts.publish("q", "p", [Publication(f"p-{n}", frame("send", n)) for n in range(251)]))
    assert len(in_json(server)) == 250
    assert in_json(server, "delete", "--all") == [{"queue": "q", "action": "delete", "number": 250}]


def test_tasks_are_cancelled_by_their_ids(server: Server, graves: redis.Redis) -> None:
    run(graves, scripts.publish("mail", "p", [Publication("p-7", frame("send", 7)), Publication("p-8", frame("send", 8))]))
    outcome = ferryman("cancel", server.url(), "send-7", "send-1", "--format", "json")
    assert outcome.lines() == [{"task_id": "send-7", "queue": "mail", "job_id": "p-7"}]
    assert outcome.error == "not found, or begun already: send-1"
    assert graves.zrange("ferryman:{mail}:waiting", 0, -1) == [b"p-8"]
    assert ferryman("cancel", server.url(), "send-8", "--queue", "video").stdout == ""
    assert ferryman("cancel", server.url(), "send-8").stdout == "removed send-8 from queue mail\n"


@pytest.mark.parametrize("command", [("dead",), ("cancel", "id")])
def test_other_systems_and_silent_servers_are_named(server: Server, command: tuple[str, ...]) -> None:
    name, *more = command
    foreign = ferryman(name, server.url(family="kue"), *more)
    assert (foreign.status, "ferryman's own queues only" in foreign.error) == (2, True)
    silent = ferryman(name, "ferryman://user:secret@127.0.0.1:1/0", *more)
    assert silent.status == 3
    assert "127.0.0.1:1" in silent.error
    assert "secret" not in silent.error


def test_an_app_needs_no_url(server: Server, client: redis.Redis) -> None:
    send(server, [(NOTE, [1], {"task_id": "one"}), (NOTE, [2], {"task_id": "two"})])
    done = celery(server, "ferryman", "cancel", "one", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert '"task_id":"one"' in done.stdout.replace(" ", "")
    assert client.zcard("ferryman:{celery}:waiting") == 1
    backend = f"redis://{server.host}:{server.port}/3"
    assert celery(server, "--result-backend", backend, "ferryman", "cancel", "two").returncode == 0
    with server.client(3) as results:
        assert b'"REVOKED"' in results.get("celery-task-meta-two")
    dead = celery(server, "ferryman", "dead")
    assert (dead.returncode, "queue" in dead.stdout) == (0, True), dead.stderr
    wrong = celery(server, "ferryman", "dead", "delete")
    assert wrong.returncode == 2
    assert "say which dead letters" in wrong.stderr
