"""``self.retry`` in a task that is another system's job: one transition of that job, in the place of another message.

Celery publishes the task once more and then raises ``Retry``. What it publishes under the id of the task that is being retried,
to the queue that it came from, is taken over here, before it is a message. To another queue it goes as a new job. The system
counts the attempts: when it says that none is left, the task fails as with Celery's own ``max_retries``.
"""

from __future__ import annotations

import contextlib
import datetime
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import Any

from attrs import frozen

from ...schema.errors import FerrymanError
from ...schema.live import Failure
from . import outcomes
from .foreign_run import ForeignRun

MODULE = "celery.app.task"


@frozen
class Retrying:
    """A retry under way in this thread or greenlet."""

    run: ForeignRun
    failure: Failure
    delay_ms: int
    is_changed: bool
    """Whether it is to run with other arguments or options."""


_retrying: ContextVar[Retrying | None] = ContextVar("ferryman_retrying", default=None)


class NotRetried(FerrymanError):
    """The job of a task that wants to run again has no attempt left, or its end could not be written."""


def take_over(headers: Mapping[str, Any], queue: str, encode: Callable[[], tuple[bytes, bytes | None]]) -> bool:
    """Whether what is about to be published is a retry, which is done now. ``encode`` gives payload and extra of the new job.

    Raises NotRetried, which Celery's ``retry`` hides in a Reject. Called by whoever publishes to a foreign keyspace.
    """
    retrying = _retrying.get()
    if retrying is None:
        return False
    run = retrying.run
    if headers.get("id") != run.task_id:
        return False
    if run.outcome == "lost":
        return True  # a new job would be the ghost of one that is others' business
    if str(queue) != run.job.queue:
        return False
    if run.outcome is not None:
        return True
    payload, extra = encode() if retrying.is_changed else (None, None)
    outcome = run.retry(retrying.delay_ms, retrying.failure, payload, extra)
    if outcome in (None, "failed"):
        raise NotRetried(f"{run.job} " + ("has no attempt left" if outcome else "could not be retried"))
    return True


@contextlib.contextmanager
def retrying(
    run: ForeignRun, error: BaseException | None, delay_ms: int, text: str | None = None, *, is_changed: bool = False
) -> Iterator[None]:
    """While the block publishes the run's task once more. ``error``: why, with its traceback as ``text``."""
    if error is None:
        failure = Failure(f"retry in {delay_ms / 1000:g} s", exception="Retry")
    else:
        failure = outcomes.failure(error, text)
    token = _retrying.set(Retrying(run, failure, delay_ms, is_changed))
    try:
        yield
    finally:
        _retrying.reset(token)


def install() -> None:
    """Has the tasks of this process retry foreign jobs in one transition, if Celery is loaded and it is not installed yet."""
    task_class: Any = getattr(sys.modules.get(MODULE), "Task", None)
    if task_class is None or hasattr(task_class.retry, "knows_ferryman"):
        return
    known = task_class.retry

    @wraps(known)
    def retry(
        self: Any,
        args: Any = None,
        kwargs: Any = None,
        exc: Any = None,
        throw: bool = True,
        eta: Any = None,
        countdown: Any = None,
        max_retries: Any = None,
        **options: Any,
    ) -> Any:
        run = ForeignRun.of(self.request)
        if run is None:
            return known(self, args, kwargs, exc, throw, eta, countdown, max_retries, **options)
        active = sys.exc_info()[1]
        cause = exc if isinstance(exc, BaseException) else active
        text = "".join(traceback.format_exception(cause)) if cause is not None else None
        is_changed = args is not None or kwargs is not None or bool(options)
        try:
            with retrying(run, cause, _delay_ms(self, eta, countdown), text, is_changed=is_changed):
                return known(self, args, kwargs, exc, throw, eta, countdown, max_retries, **options)
        except Exception as raised:
            if run.outcome != "failed" or type(raised).__name__ != "Reject":
                raise
        if exc is not None:
            raise exc from (active if active is not exc else None)
        raise self.MaxRetriesExceededError(
            f"Can't retry {self.name}[{self.request.id}]: the job has no attempt left",
            task_args=self.request.args,
            task_kwargs=self.request.kwargs,
        )

    retry.knows_ferryman = True  # type: ignore[attr-defined]
    task_class.retry = retry


def _delay_ms(task: Any, eta: Any, countdown: Any) -> int:
    """How long a task is to wait until it runs again."""
    if eta:
        moment = datetime.datetime.fromisoformat(eta) if isinstance(eta, str) else eta
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=task.app.timezone)
        countdown = (moment - datetime.datetime.now(datetime.UTC)).total_seconds()
    elif countdown is None:
        countdown = task.default_retry_delay
    return max(0, round((countdown or 0) * 1000))
