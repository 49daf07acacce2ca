"""A Celery app for tests whose broker is another system's keyspace, run by real workers. Its tasks do what their payload says.

The settings are Celery's own: early acks, and no result backend unless the environment names one.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from typing import Any

import redis
from celery import Celery
from celery.exceptions import Ignore, Reject

from .tasks import BROKER, LEDGER, deliveries_before, record, wait_until_let_go

app = Celery("foreign", broker=BROKER, backend=os.environ.get("FERRYMAN_TEST_BACKEND"))
app.conf.update(
    task_ignore_result="FERRYMAN_TEST_BACKEND" not in os.environ,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"lease": float(os.environ.get("FERRYMAN_TEST_LEASE", "30"))},
    task_default_queue="story",
    worker_lost_wait=1,
    worker_pool_start_method=os.environ.get("FERRYMAN_TEST_START_METHOD", "fork"),
    task_acks_late=os.environ.get("FERRYMAN_TEST_LATE") == "1",
)


def first_time(name: object) -> bool:
    """Whether nobody has asked this before under this name."""
    with redis.Redis.from_url(LEDGER) as ledger:
        return ledger.incr(f"times:{name}") == 1


def _returns(_task: Any, payload: dict[str, Any]) -> Any:
    return payload.get("value")


def _raises(_task: Any, payload: dict[str, Any]) -> None:
    raise LookupError(f"no customer in {payload['name']}")


def _retries(task: Any, payload: dict[str, Any]) -> Any:
    if task.request.retries >= payload.get("times", 1):
        return "at last"
    try:
        raise LookupError("not yet")
    except LookupError as error:
        raise task.retry(exc=error, countdown=payload.get("countdown", 0), max_retries=None) from error


def _retries_changed(task: Any, payload: dict[str, Any]) -> Any:
    if payload.get("round") == 2:
        return "changed"
    raise task.retry(args=[{**payload, "round": 2}], countdown=0)


def _requeues(_task: Any, payload: dict[str, Any]) -> str:
    if first_time(payload["name"]):
        raise Reject("not now", requeue=True)
    return "taken again"


def _rejects(_task: Any, _payload: dict[str, Any]) -> None:
    raise Reject("never", requeue=False)


def _ignores(_task: Any, _payload: dict[str, Any]) -> None:
    raise Ignore


def _progresses(task: Any, payload: dict[str, Any]) -> str:
    task.update_state(state="PROGRESS", meta={"current": 1, "total": 4})
    record("half", payload["name"])
    return "done"


def _dies(_task: Any, payload: dict[str, Any]) -> str:
    if payload.get("always") or first_time(payload["name"]):
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


def _exits(_task: Any, _payload: dict[str, Any]) -> None:
    raise SystemExit(3)


def _sleeps(_task: Any, payload: dict[str, Any]) -> str:
    end = time.monotonic() + payload["seconds"]
    while time.monotonic() < end:
        time.sleep(0.05)
    return "slept"


def _hangs(_task: Any, payload: dict[str, Any]) -> None:
    ctypes.CDLL(None).usleep(round(payload["seconds"] * 1_000_000))


def _lingers(_task: Any, payload: dict[str, Any]) -> str:
    turn = "first" if first_time(payload["name"]) else "second"
    record(turn, payload["name"])
    wait_until_let_go(turn)
    return turn


def _holds(_task: Any, payload: dict[str, Any]) -> None:
    wait_until_let_go(payload["name"])


DEEDS = {
    "return": _returns,
    "raise": _raises,
    "retry": _retries,
    "retry changed": _retries_changed,
    "requeue": _requeues,
    "reject": _rejects,
    "ignore": _ignores,
    "progress": _progresses,
    "die": _dies,
    "exit": _exits,
    "sleep": _sleeps,
    "hang": _hangs,
    "hold": _holds,
    "linger": _lingers,
}


def act(task: Any, payload: dict[str, Any]) -> Any:
    """Does what the payload says, and tells the ledger when it begins and when it has returned."""
    request = task.request
    known = {"id": request.id, "retries": request.retries, "mark": request.headers["ferryman"]}
    record("start", payload["name"], **known, before=deliveries_before(task))
    value = DEEDS[payload["do"]](task, payload)
    record("end", payload["name"])
    return value


@app.task(bind=True, name="story")
def story(self, payload):
    """The usual one."""
    return act(self, payload)


@app.task(bind=True, name="hasty", time_limit=1)
def hasty(self, payload):
    """Has a hard time limit."""
    return act(self, payload)


@app.task(bind=True, name="hasty_late", time_limit=1, acks_late=True)
def hasty_late(self, payload):
    """The same, acked late."""
    return act(self, payload)


@app.task(bind=True, name="soft", soft_time_limit=1)
def soft(self, payload):
    """Has a soft time limit."""
    return act(self, payload)


@app.task(bind=True, name="auto", autoretry_for=(LookupError,), retry_kwargs={"max_retries": 5, "countdown": 0})
def auto(self, payload):
    """Is retried by itself."""
    return act(self, payload)


@app.task(bind=True, name="replaced")
def replaced(self, payload):
    """Another task takes its place."""
    record("start", payload["name"], id=self.request.id)
    return self.replace(story.s({"name": f"{payload['name']}-other", "do": "return", "value": 7}).set(queue="story"))


@app.task(name="add")
def add(x, y):
    """For chains, groups and chords."""
    record("add", [x, y])
    return x + y


@app.task(name="total")
def total(numbers):
    """The body of a chord."""
    record("total", numbers)
    return sum(numbers)


@app.task(name="broken")
def broken(x):
    """Raises."""
    record("broken", x)
    raise LookupError("broken")


@app.task(name="note_error")
def note_error(task_id):
    """An errback of the old form: it gets the id of the task."""
    record("errback", task_id)
