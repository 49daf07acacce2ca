"""Revoked tasks: what an app, its results and its monitors learn of tasks that were revoked before any worker had them.

A worker that discards a revoked task tells the result backend, which fails the chord that waits for it, sends the event
``task-revoked`` to monitors, and fires the signal ``task_revoked``. Nobody would, once a task has left its queue; so who removes
it does the same. Called by ``revocation.py`` and the command line, with the app that revokes; imports Celery only here.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence, Set
from types import FrameType
from typing import Any

from kombu.serialization import prepare_accept_content
from kombu.transport import base

from ...schema.errors import MalformedValue
from ...schema.native.scripts.results import Task
from ..message import Content, Message, content

logger = logging.getLogger("ferryman.transport")

REASON = "revoked"
"""What a worker says of such a task."""
UNSAFE = "application/x-python-serialize"
"""Pickle: only workers open it, since whoever can write to Redis can write it."""
EVENTS = 100
"""Events that go out in one message."""


def revoking_app() -> Any:
    """The Celery app whose remote control sends something at this moment, in this thread or greenlet; None without one.

    Only the callers further up know it. The message names no app, what counts as the current one depends on the thread, and apps
    with the same broker URL share their connections, because kombu keeps its pools by URL.
    """
    control = getattr(sys.modules.get("celery.app.control"), "Control", None)
    if control is None:
        return None
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, control):
            return caller.app
        frame = frame.f_back
    return None


def report_revoked(app: Any, removed: Sequence[Task], transport: base.Transport) -> None:
    """Does for tasks that are gone from their queues what a worker does for one that it discards.

    ``transport``: by which events go; another connection of the app's pools might have to wait for the caller's own. Never fails:
    the tasks are gone already, so trouble is only logged.
    """
    if not removed:
        return
    requests = [(task, _request(app, task)) for task in removed]
    try:
        _send_events(app, [(celery_task(app, request), task.task) for task, request in requests], transport)
    except Exception as error:  # noqa: BLE001 - see above
        logger.warning("monitors could not be told of %s revoked tasks: %s", len(removed), error)
    for task, request in requests:
        try:
            _report(app, task.task, request)
        except Exception as error:  # noqa: BLE001 - backends raise what their drivers do
            logger.warning("task %s was removed, but its result backend does not know: %s", task.task, error)


def _send_events(app: Any, tasks: Sequence[tuple[Any, str]], transport: base.Transport) -> None:
    with (
        transport.create_channel(transport) as channel,
        app.events.Dispatcher(
            transport.client, channel=channel, buffer_group=frozenset({"task"}), buffer_limit=EVENTS
        ) as dispatcher,
    ):
        for celery_task, task_id in tasks:
            if celery_task.send_events:
                dispatcher.send("task-revoked", uuid=task_id, terminated=False, signum=None, expired=False)
        dispatcher.flush()


def _report(app: Any, task_id: str, request: dict[str, Any]) -> None:
    from celery.app.task import Context
    from celery.signals import task_revoked

    task, context = celery_task(app, request), Context(request)
    task.backend.mark_as_revoked(task_id, REASON, request=context)
    task_revoked.send(task, request=context, terminated=False, signum=None, expired=False)


def celery_task(app: Any, request: dict[str, Any]) -> Any:
    """The app's task, whose backend may be one of its own; one of that name where the app has only ever sent it."""
    name = request.get("task")
    known = app.tasks.get(name)
    if known is not None:
        return known
    unknown = app.Task()
    unknown.name = name
    return unknown


def _request(app: Any, task: Task) -> dict[str, Any]:
    """What a worker's request holds: the headers, and the arguments, callbacks and chord that the body names.

    Does not open pickle.
    """
    if not task.message:
        return {"id": task.task}
    try:
        found = content(task.id, "", {b"message": task.message})
    except MalformedValue as error:
        logger.debug("the message of the removed task %s can't be read: %s", task.task, error)
        return {"id": task.task}
    return request_of(task.task, found, prepare_accept_content(app.conf.accept_content) - {UNSAFE})


def request_of(task_id: str, found: Content, accept: Set[str]) -> dict[str, Any]:
    """The fields of a worker's request for a task message. Without those of its body if that can't be read.

    ``accept``: the content types that may be decoded.
    """
    message = Message(None, 0, found)
    message.accept = accept
    properties = message.properties
    request: dict[str, Any] = message.headers | {
        "id": task_id,
        "properties": properties,
        "reply_to": properties.get("reply_to"),
        "correlation_id": properties.get("correlation_id"),
        "delivery_info": message.delivery_info,
    }
    try:
        match message.payload:
            case dict() as task:  # task protocol 1
                return {**request, **task}
            case args, kwargs, embedded:
                return {**request, "args": args, "kwargs": kwargs, **(embedded or {})}
    except Exception as error:  # noqa: BLE001 - decoders raise what they like
        logger.warning("the body of task %s can't be read, so a chord may wait for it: %s", task_id, error)
    return request
