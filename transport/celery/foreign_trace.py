"""What a pool runs in the place of Celery's own tracing functions: the same, and the end of the foreign job that the task is.

Most ends are written while it runs, by ``ending_backend.py`` and ``foreign_retry.py``. Left for here are those of which Celery
tells no backend: ``Reject`` and ``Ignore``, a task that has sent itself to another queue, errors of Celery itself. The main
process gets the outcome along with the result. The functions are named in what is sent to pool processes, spawned ones too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...schema.live import Outcome
from . import foreign_retry, outcomes
from .ending_backend import watch
from .foreign_run import RUN, ForeignRun

Result = tuple[int, Any, float]
"""What Celery's functions give: whether the task has failed, its return value as text or its exception, its seconds."""


class Ended(tuple[Any, ...]):
    """A Result, with what became of the job; None if its end could not be written."""

    outcome: Outcome | None

    def __new__(cls, result: Result, outcome: Outcome | None) -> Ended:
        ended = super().__new__(cls, result)
        ended.outcome = outcome
        return ended

    def __reduce__(self) -> tuple[Any, ...]:
        return Ended, (tuple(self), self.outcome)


def fast_trace_task(*args: Any, **kwargs: Any) -> Any:
    """Celery's function of this name, for every task of a worker."""
    from celery.app import trace

    return _trace(trace.fast_trace_task, *args, **kwargs)


def trace_task_ret(*args: Any, **kwargs: Any) -> Any:
    """The same where a worker's optimisations are off."""
    from celery.app import trace

    return _trace(trace.trace_task_ret, *args, **kwargs)


def _trace(known: Callable[..., Result], name: str, task_id: str, request: Any, *args: Any, **kwargs: Any) -> Any:
    properties = request.get("properties") if isinstance(request, dict) else None
    run = properties.get(RUN) if isinstance(properties, dict) else None
    if not isinstance(run, ForeignRun):
        return known(name, task_id, request, *args, **kwargs)
    prepare(run, name, kwargs.get("app"))
    run.is_running = True
    try:
        result = known(name, task_id, request, *args, **kwargs)
        if run.outcome is None and not run.is_unwritten:
            _end(run, result)
    finally:
        run.is_running = False
    return Ended(result, run.outcome)


def prepare(run: ForeignRun, name: str, app: Any = None) -> None:
    """Makes this process ready to end the run of a task of this name."""
    from celery import current_app

    app = app or current_app._get_current_object()
    run.bind(app)
    foreign_retry.install()
    task = app.tasks.get(name)
    if task is not None:
        watch(task)


def _end(run: ForeignRun, result: Result) -> None:
    from celery.exceptions import Ignore, Reject, Retry

    has_failed, value, _ = result
    if not has_failed:
        run.complete(None)
        return
    error = getattr(value.exception, "exc", value.exception)  # billiard wraps it to carry its traceback
    match error:
        case Reject() if error.requeue:
            run.requeue()
        case Reject():
            run.fail(outcomes.failure(error, value.traceback, is_final=True))
        case Ignore() | Retry():
            run.complete(None)  # replaced by another task, or sent to another queue: this job is done
        case _:
            run.fail(outcomes.failure(error, value.traceback))
