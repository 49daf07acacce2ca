"""Who cancels by ``ferryman steer`` for an app tells its result backend, as a revoke does; without one it says so."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from celery import Celery, chord
from celery.exceptions import ChordError
from ferryman.schema.connection.call import run
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from ..support.command import ferryman
from ..support.servers import Server
from ..support.workers import celery

pytestmark = pytest.mark.in_turn

SEND, CHECK = "shop.send", "shop.check"
scripts = QueueScripts()


def backend(server: Server) -> str:
    return f"redis://{server.host}:{server.port}/2"


@pytest.fixture
def app(server: Server) -> Iterator[Celery]:
    """An app with a result backend, beside the broker."""
    with Celery("steering", broker=server.url(), backend=backend(server)) as made:
        yield made
    gc.collect()  # a result that dies after its server tries for 20 s to say so, in whichever test it is then


def job_of(client: redis.Redis, task_id: str) -> str:
    """The id of the job of a task that waits or is scheduled."""
    for role in ("waiting", "scheduled"):
        found = run(client, scripts.find("celery", {task_id}, role))
        for job in found.jobs:
            return str(job.id)
    raise AssertionError(f"task {task_id} is nowhere")


def test_tasks_cancelled_by_their_ids_are_revoked_for_who_waits_for_them(
    server: Server, app: Celery, client: redis.Redis
) -> None:
    waits, later, large = (app.send_task(SEND, *sent) for sent in ((["a"],), (["b"],), (["x" * 100_000],)))
    kept = app.send_task(SEND, countdown=3600)
    ids = [job_of(client, each.id) for each in (waits, later, large)]
    outcome = ferryman("steer", server.url(), "cancel", *ids, app=app)
    assert (outcome.status, outcome.stderr) == (0, "")
    assert [each.state for each in (waits, later, large, kept)] == ["REVOKED", "REVOKED", "REVOKED", "PENDING"]


def test_of_all_that_match_each_is_revoked_and_a_dry_run_tells_nobody(server: Server, app: Celery) -> None:
    with app.producer_pool.acquire() as producer:
        meant: list[Any] = [app.send_task(SEND, [n], producer=producer) for n in range(250)]
        others: list[Any] = [app.send_task(CHECK, [n], producer=producer) for n in range(20)]
    meant += [app.send_task(SEND, countdown=3600), app.send_task(SEND, ["x" * 100_000])]
    wanted = ("cancel", "--queue", "celery", "--task", SEND)
    ferryman("steer", server.url(), *wanted, "--dry-run", app=app)
    assert {each.state for each in meant} == {"PENDING"}
    outcome = ferryman("steer", server.url(), *wanted, "--yes", app=app)
    assert (outcome.status, outcome.stderr) == (0, "")
    assert {each.state for each in meant} == {"REVOKED"}
    assert {each.state for each in others} == {"PENDING"}


def test_a_chord_fails_with_a_member_that_is_cancelled(server: Server, app: Celery) -> None:
    result = chord([app.signature(SEND, (n,)) for n in range(2)], app=app)(app.signature(CHECK))
    ferryman("steer", server.url(), "cancel", "--all", "--yes", app=app)
    assert isinstance(result.get(timeout=60, propagate=False), ChordError)


def test_the_command_of_an_app_knows_its_backend(server: Server, app: Celery) -> None:
    result = app.send_task(SEND)
    done = celery(server, "--result-backend", backend(server), "ferryman", "steer", "cancel", "--all", "--yes")
    assert done.returncode == 0, done.stderr
    assert result.state == "REVOKED"


@pytest.mark.parametrize("how", ["id", "filter"])
def test_without_an_app_it_says_that_nobody_was_told_and_who_would(
    server: Server, app: Celery, client: redis.Redis, how: str
) -> None:
    result = app.send_task(SEND)
    which = [job_of(client, result.id)] if how == "id" else ["--all", "--yes"]
    assert "celery -A APP ferryman steer cancel tells" in ferryman("steer", server.url(), "cancel", *which).stderr
    assert result.state == "PENDING"
    assert "tells" not in ferryman("steer", server.url(), "cancel", "--all", "--yes").stderr, "nothing was cancelled"
