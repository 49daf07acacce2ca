"""ForeignRequest: what a Celery worker's main process knows of a task that is another system's job.

Celery acks most tasks as they begin, and looks at nothing after that; a foreign job stays held, and keeps its place among those
that the worker may have at once, until it has ended. So an early ack does nothing here; whatever ends the request gives the place
free, and ends the job, if the process that ran the task could not. ``install``, called for each new transport of a foreign
keyspace, has Celery make such requests of messages of such transports; all others stay as they were.
"""

from __future__ import annotations

import logging
import sys
import threading
import weakref
from functools import wraps
from typing import Any

from ..message import Message
from . import foreign_retry, foreign_trace, outcomes
from .end_flags import flags
from .foreign_run import LIMIT, RUN, ForeignRun, HeldJob
from .foreign_trace import Ended

logger = logging.getLogger("ferryman.transport")

MODULE = "celery.worker.request"

_requests: weakref.WeakValueDictionary[tuple[str, int], Any] = weakref.WeakValueDictionary()
"""(consumer, delivery tag) -> the request that was made of this delivery."""
_classes: dict[type, type] = {}
"""A class of requests -> the foreign one made of it."""


class ForeignRequest:
    """Comes before a worker's own class of requests."""

    __slots__ = ()

    def execute_using_pool(self: Any, pool: Any, **kwargs: Any) -> Any:
        """Begin the task, unless its job was lost while it waited in this worker. Raises TaskRevokedError then."""
        if self.ferryman_run.is_taken_again:
            self.ferryman_run.lose()
        if self.ferryman_run.outcome is not None:
            from celery.exceptions import TaskRevokedError

            if not self._already_revoked:
                self._announce_revoked("revoked", False, None, False)
            raise TaskRevokedError(self.id)
        self.ferryman_pool = pool
        return super().execute_using_pool(pool, **kwargs)  # type: ignore[misc]

    def acknowledge(self: Any) -> None:
        """Does nothing for a job that has not ended: that would be an early ack."""
        if self.ferryman_run.outcome is not None:
            _settle(self)

    def reject(self: Any, requeue: bool = False) -> None:
        """The job is to wait again, or has failed for good; unless it has ended already."""
        run = self.ferryman_run
        if run.outcome is None:
            if requeue:
                run.requeue()
            else:
                run.fail(outcomes.rejected())
            self.send_event("task-rejected", requeue=requeue)
        self.acknowledge()

    def on_success(self: Any, result: Any, **kwargs: Any) -> Any:
        """The pool has called the task, which may have failed as well."""
        run = self.ferryman_run
        if not isinstance(result, tuple):
            return self.on_failure(result)  # a thread's task has raised what ends threads
        if isinstance(result, Ended):
            if result.outcome is not None:
                run.learn(result.outcome)
            else:
                run.requeue()
        try:
            return super().on_success(result, **kwargs)  # type: ignore[misc]
        finally:
            if run.outcome is None and not result[0] and not self.ferryman_is_stopping:
                run.complete(None)
            _finish(self)

    def on_failure(self: Any, exc_info: Any, *args: Any, **kwargs: Any) -> Any:
        """The task has raised, or its process is gone."""
        run = self.ferryman_run
        error = getattr(exc_info.exception, "exc", exc_info.exception)  # billiard wraps it to carry its traceback
        delay_ms = round(1000 * (self.task.default_retry_delay or 0))  # Celery's, for a task whose process is gone
        try:
            with foreign_retry.retrying(run, error, delay_ms):
                result = super().on_failure(exc_info, *args, **kwargs)  # type: ignore[misc]
            if run.outcome is None and not (run.is_unwritten or _is_stopped(self)):
                run.fail(outcomes.failure(error, exc_info.traceback))
            return result
        finally:
            _finish(self)

    def on_timeout(self: Any, soft: bool, timeout: Any) -> Any:
        """The task has run into one of its time limits."""
        try:
            return super().on_timeout(soft, timeout)  # type: ignore[misc]
        finally:
            if not soft:
                _finish(self)

    def _announce_revoked(self: Any, *args: Any, **kwargs: Any) -> None:
        """The task is discarded, or was terminated."""
        super()._announce_revoked(*args, **kwargs)  # type: ignore[misc]
        self.ferryman_is_stopping = False
        _finish(self)

    def terminate(self: Any, *args: Any, **kwargs: Any) -> Any:
        """The task is revoked while it runs. Green pools report its end before this has returned."""
        self.ferryman_is_stopping = True
        try:
            return super().terminate(*args, **kwargs)  # type: ignore[misc]
        finally:
            self.ferryman_is_stopping = False

    def cancel(self: Any, *args: Any, **kwargs: Any) -> Any:
        """The worker goes down and waits no longer."""
        self.ferryman_is_stopping = True
        try:
            result = super().cancel(*args, **kwargs)  # type: ignore[misc]
        finally:
            self.ferryman_is_stopping = False
        _finish(self)
        return result


def install() -> None:
    """Has this process's worker make ForeignRequests, if Celery's worker is loaded and it is not installed yet."""
    foreign_retry.install()
    module: Any = sys.modules.get(MODULE)
    if module is None or hasattr(module.Request.__init__, "knows_ferryman"):
        return
    known = module.Request.__init__

    @wraps(known)
    def init(self: Any, message: Any, *args: Any, **kwargs: Any) -> None:
        known(self, message, *args, **kwargs)
        if isinstance(message, Message):
            _adopt(self, message)

    init.knows_ferryman = True  # type: ignore[attr-defined]
    module.Request.__init__ = init
    module.fast_trace_task = foreign_trace.fast_trace_task
    module.trace_task_ret = foreign_trace.trace_task_ret


def _adopt(request: Any, message: Message) -> None:
    """Makes a request a foreign one, if its message came from a foreign keyspace."""
    settings = message.channel.session.settings
    job = HeldJob.of(message.headers, message.properties) if settings.foreign is not None else None
    if job is None:
        return
    run = ForeignRun(job, request.id, settings.address, flags.take())
    request.ferryman_run = run
    request.ferryman_is_stopping = False
    request._request_dict["properties"] = {**message.properties, RUN: run}
    request.__class__ = _foreign_class(type(request))
    _limit(request, message.properties.get(LIMIT))
    foreign_trace.prepare(run, request.task.name, request.app)
    _requests[job.consumer, message.delivery_tag] = request


def _limit(request: Any, system_limit: float | None) -> None:
    """Of the limit of the system's and one of the task's own the shorter one holds; the message has the first."""
    hard, soft = request.time_limits or (None, None)
    own = request.task.time_limit
    if system_limit is not None and hard == system_limit and own:
        request.time_limits = (min(hard, own), soft)


def _foreign_class(base: type) -> type:
    """A class of requests with ForeignRequest before it. Instances stay as they are: it has no slot more."""
    made = _classes.get(base)
    if made is None:
        made = _classes[base] = type(base.__name__, (ForeignRequest, base), {"__slots__": ()})
    return made


def _settle(request: Any) -> None:
    """The job has ended: gives its place free."""
    if not request.acknowledged:
        request.acknowledged = True
        request.ferryman_run.give_flag_back()
        request.message.settle()


def _finish(request: Any) -> None:
    """The request is over: its place is free, and a job that has not ended waits again."""
    if request.ferryman_is_stopping:
        return  # what stops it says what becomes of the job
    if request.ferryman_run.outcome is None:
        request.ferryman_run.requeue()
    request.acknowledge()


def _is_stopped(request: Any) -> bool:
    """Whether the worker itself has ended the task's process."""
    return bool(request._already_revoked or request._already_cancelled)


# Jobs that others have ended


def set_taken_again(consumer: str, tag: int) -> None:
    """The consumer has taken the job of a delivery again: the task of the first delivery ends nothing, and is revoked."""
    request = _requests.get((consumer, tag))
    if request is None:
        return
    request.ferryman_run.set_taken_again()
    if flags.are_shared:  # else a run that has just ended looks the same, and LostJobs waits
        revoke_lost(consumer, tag)


def revoke_lost(consumer: str, tag: int) -> None:
    """The job of a delivery is not the consumer's any more, though its task has not ended here: revoke the task, if its pool can.

    Called again and again, for as long as that is so. A task that has not begun is dropped.
    """
    request = _requests.get((consumer, tag))
    if request is None or request.acknowledged or request.ferryman_run.is_ending:
        return
    request.ferryman_run.lose()
    # Not in this thread: others' leases hang on it, and to tell a result backend may take long.
    threading.Thread(target=_revoke, args=(request,), name="ferryman-revoke", daemon=True).start()


def _revoke(request: Any) -> None:
    pool = getattr(request, "ferryman_pool", None)
    if pool is None:
        request._announce_revoked("revoked", False, None, False)
        return
    try:
        request.terminate(pool)
    except NotImplementedError:
        logger.warning("task %s can't be terminated on this pool; it runs on, and its result is not wanted", request.id)
