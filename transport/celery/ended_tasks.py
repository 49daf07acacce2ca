"""Ended tasks: reports to Celery about tasks that the broker has ended without a worker.

A message that expires, makes room in a full queue or reaches the delivery limit becomes a dead letter. Celery's worker never sees
that end, so without a report the result stays PENDING, a chord waits for ever, and monitors show a task that never ends. The
scripts note each such task in the queue's key ``unreported``. A worker that consumes the queue, of whichever app, claims some of
them for a time, reports each one as Celery's worker itself does, and says so to the server. If the worker dies in between, the
claim runs out and another worker reports.

Called by ``consume/poller.py``, in the thread that drains events. Imports Celery only where a worker runs.
"""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import redis
from kombu.serialization import prepare_accept_content

from ...schema.errors import FerrymanError, MalformedValue
from ...schema.native.scripts.results import Delivery
from ...schema.text import load_json, to_text
from ..errors import CONNECTION_ERRORS
from ..message import Content, content, is_task
from ..session import Session
from .consuming_worker import ConsumingWorker
from .revoked_tasks import celery_task, request_of

logger = logging.getLogger("ferryman.transport")

BATCH = 50
"""Tasks that one claim takes. Between two claims the event loop turns."""
CLAIM_MS = 60_000
"""Time after which another worker may report what this one has claimed, ms."""
POLL_INTERVAL = 1.0
"""Seconds after which a queue is asked again whose tasks are claimed by others."""
RETRY_INTERVAL = 5.0
"""Seconds after which a queue is tried again that is damaged."""
PATIENCE = 2.0
"""Seconds after which a batch ends in which a report has failed: the result backend is perhaps not available."""

REVOKED = ("expired", "maxlen")
"""Reasons for which the task never runs. Any other reason is a failure."""


class EndedTasks:
    """The reports that the workers of one connection owe. Not thread-safe."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._workers: dict[str, ConsumingWorker] = {}
        """Queue -> the worker that reports for it."""
        self._due: dict[str, float] = {}
        """Queue -> when to claim its tasks, on the monotonic clock."""

    def mark(self, queue: str, worker: ConsumingWorker) -> None:
        """Tasks of this queue are to be reported, by this worker."""
        self._workers[queue] = worker
        self._due.setdefault(queue, 0.0)

    def is_due(self, queue: str) -> bool:
        """Whether to report before more is taken from the queue, so that ends are not added faster than reported."""
        return self._due.get(queue, math.inf) <= time.monotonic()

    @property
    def seconds_left(self) -> float:
        """Seconds until ``report`` has something to do."""
        return max(0.0, min(self._due.values(), default=math.inf) - time.monotonic())

    def report(self) -> None:
        """Reports a batch of each queue whose time has come. Raises connection errors of the broker."""
        for queue in [queue for queue in self._due if self.is_due(queue)]:
            try:
                wait = self._report_batch(queue, self._workers[queue])
            except CONNECTION_ERRORS:
                raise
            except (FerrymanError, redis.exceptions.ResponseError) as error:
                logger.error("the ends of tasks of queue %r can't be reported, trying again: %s", queue, error)
                wait = RETRY_INTERVAL
            if wait is None:
                del self._due[queue], self._workers[queue]
            else:
                self._due[queue] = time.monotonic() + wait

    def _report_batch(self, queue: str, worker: ConsumingWorker) -> float | None:
        """Gives the seconds until the next batch; None if no task is left."""
        link, scripts = self._session.link, self._session.scripts
        claimed = link.run(scripts.claim_unreported(queue, CLAIM_MS, limit=BATCH))
        started, done = time.monotonic(), []
        # In random order: a task whose report always fails must not keep those behind it from being reported.
        for job in random.sample(claimed.tasks, len(claimed.tasks)):
            try:
                report_end(worker, queue, job, is_repeated=job.id in claimed.again)
            except Exception as error:  # noqa: BLE001 - backends raise what their drivers do
                logger.warning(
                    "the end of a task of queue %r (job %s) could not be stored in the result backend, trying again in %g s: %r",
                    queue, job.id, CLAIM_MS / 1000, error,
                )  # fmt: skip
                if time.monotonic() - started > PATIENCE:
                    break
            else:
                done.append(job.id)
        if done:
            link.run(scripts.reported(queue, done))
        if claimed.next_claim_ms is None or (
            len(done) == len(claimed.tasks) and claimed.next_claim_ms > claimed.now + CLAIM_MS - 1
        ):
            return None
        return max(0.0, min((claimed.next_claim_ms - claimed.now) / 1000, POLL_INTERVAL))


def report_end(worker: ConsumingWorker, queue: str, job: Delivery, *, is_repeated: bool = False) -> None:
    """Does for a task that has ended as a dead letter what Celery's worker does for one that it ends itself.

    Result, chord, callbacks, event and signal, as the result's absence requires: a task that already has a final result keeps it.
    ``is_repeated``: an earlier report may have stopped halfway. Raises what the result backend raises.
    """
    try:
        found = content(job.id, queue, job.fields)
    except MalformedValue as error:
        logger.debug("the message of dead job %s can't be read, so its task is unknown: %s", job.id, error)
        return
    if not is_task(found):
        return
    app = worker.consumer.app
    task_id = _task_id(found)
    request = request_of(task_id, found, prepare_accept_content(app.conf.accept_content))
    task = celery_task(app, request)
    has_result = _has_result(task.backend, task_id)
    if has_result and not is_repeated:
        return
    reason = to_text(job.fields.get(b"reason", b""))
    detail = f"{to_text(job.fields.get(b'error', b''))}; dead letter of queue {queue!r}"
    end = _report_revoked if reason in REVOKED else _report_failed
    end(_sender(worker, task, task_id), task, request, reason, detail, has_result=has_result)


def _task_id(found: Content) -> str:
    """The id of a task, in protocol 2 from the headers, in protocol 1 from the body."""
    names = found.headers if "task" in found.headers else load_json(found.body)
    return str(names["id"])


def _has_result(backend: Any, task_id: str) -> bool:
    """Whether a task has a final result. False where the backend stores none or can't be asked (``rpc://``)."""
    from celery.backends.base import DisabledBackend
    from celery.states import READY_STATES

    if isinstance(backend, DisabledBackend) or type(backend).__module__ == "celery.backends.rpc":
        return False
    return backend.get_state(task_id) in READY_STATES


def _sender(worker: ConsumingWorker, task: Any, task_id: str) -> Callable[..., None]:
    """Sends an event about a task, if the worker sends events. Never fails, as the result is stored already."""
    dispatcher = getattr(worker.consumer, "event_dispatcher", None)

    def send(kind: str, **fields: Any) -> None:
        if dispatcher is None or not dispatcher.enabled or not task.send_events:
            return
        try:
            dispatcher.send(kind, uuid=task_id, **fields)
        except Exception as error:  # noqa: BLE001 - see above
            logger.warning("the event %s of task %s could not be sent: %s", kind, task_id, error)

    return send


def _report_revoked(
    send: Callable[..., None], task: Any, request: Mapping[str, Any], reason: str, text: str, *, has_result: bool
) -> None:
    from celery.app.task import Context
    from celery.signals import task_revoked

    context, is_expired = Context(request), reason == "expired"
    if not has_result:
        text = reason if is_expired else text  # Celery's own word
        task.backend.mark_as_revoked(request["id"], text, request=context, store_result=_stores_errors(task, request))
    send("task-revoked", terminated=False, signum=None, expired=is_expired)
    task_revoked.send(task, request=context, terminated=False, signum=None, expired=is_expired)


def _report_failed(
    send: Callable[..., None], task: Any, request: Mapping[str, Any], reason: str, text: str, *, has_result: bool
) -> None:
    from billiard.einfo import ExceptionInfo
    from celery.app.task import Context
    from celery.exceptions import InvalidTaskError, WorkerLostError
    from celery.signals import task_failure

    error: Exception = WorkerLostError(text) if reason == "delivery_limit" else InvalidTaskError(text)
    try:
        raise error
    except (InvalidTaskError, WorkerLostError):
        info = ExceptionInfo()
    if not has_result:
        store = _stores_errors(task, request)
        task.backend.mark_as_failure(request["id"], error, request=Context(request), store_result=store)
    send("task-failed", exception=repr(error), traceback=info.traceback)
    task_failure.send(
        sender=task,
        task_id=request["id"],
        exception=error,
        args=request.get("args"),
        kwargs=request.get("kwargs"),
        traceback=info.traceback,
        einfo=info,
    )


def _stores_errors(task: Any, request: Mapping[str, Any]) -> bool:
    """Whether the result of a task that fails is stored, as Celery's ``Request.store_errors``."""
    ignored = request.get("ignore_result")
    return not (task.ignore_result if ignored is None else ignored) or bool(task.store_errors_even_if_ignored)
