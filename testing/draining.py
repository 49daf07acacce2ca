"""Draining: takes one message from a queue and runs its task here, as a worker of the app would. Called by ``broker.py``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from attrs import field, frozen
from celery import states
from celery.app.trace import build_tracer
from celery.exceptions import NotRegistered
from kombu.serialization import prepare_accept_content

HOSTNAME = "drain@test"


@frozen
class Ran:
    """One run of one task."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    queue: str
    id: str
    state: str
    """Celery's: ``SUCCESS``, ``RETRY``, ``FAILURE``, ``IGNORED``, ``REJECTED``; ``REVOKED`` for one that had expired."""
    result: Any = None
    """What it has returned."""
    error: BaseException | None = field(default=None, repr=False)
    """What it has raised, if it has failed for good."""


def ran(app: Any, connection: Any, queue: str) -> Ran | None:
    """Runs the next task of a queue; None if none waits. The message is acked when the run is over, however it ends."""
    with connection.channel() as channel:
        message = channel.basic_get(queue)
        if message is None:
            return None
        message.accept = prepare_accept_content(app.conf.accept_content)
        try:
            run = _run(app, message, queue)
        except BaseException:
            message.requeue()
            raise
        if run.state == states.REJECTED:
            message.reject()
        else:
            message.ack()
        return run


def _run(app: Any, message: Any, queue: str) -> Ran:
    headers = dict(message.headers)
    args, kwargs, embedded = message.payload
    name, task_id = headers["task"], headers["id"]
    if name not in app.tasks:
        raise NotRegistered(f"{name}: no such task in this app; import the module that defines it")

    def outcome(state: str, result: Any = None, error: BaseException | None = None) -> Ran:
        return Ran(name, tuple(args), kwargs, queue, task_id, state, result, error)

    if _is_expired(headers.get("expires")):
        return outcome(states.REVOKED)
    task = app.tasks[name]
    request = {
        **headers,
        **(embedded or {}),
        "args": args,
        "kwargs": kwargs,
        "hostname": HOSTNAME,
        "reply_to": message.properties.get("reply_to"),
        "correlation_id": message.properties.get("correlation_id", task_id),
        "delivery_info": {**message.delivery_info, "redelivered": False},
        "properties": message.properties,
    }
    app.loader.init_worker()
    trace = build_tracer(name, task, app.loader, HOSTNAME, app=app)
    value, info, *_ = trace(task_id, args, kwargs, request)
    if info is None:
        return outcome(states.SUCCESS, value)
    error = info.retval if info.state == states.FAILURE else None
    return outcome(info.state, None, getattr(error, "exception", error))


def _is_expired(expires: Any) -> bool:
    if not isinstance(expires, str):
        return False
    moment = datetime.fromisoformat(expires)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) <= datetime.now(UTC)
