"""EndingBackend: the result backend of a task, before which the ends of foreign jobs are written.

Celery tells a task's backend of every end, whatever ``ignore_result`` says, and also where there is no backend. So whatever it
is told about a request that is another system's job goes to that system first, and then to the user's own backend as ever.

A failure after which the system will run the job again is a retry for the user's backend: whoever waits for the result, a chord
or an errback goes on waiting for the last attempt. Installed by ``watch``, in each process that runs or ends tasks.
"""

from __future__ import annotations

import sys
from typing import Any

from ...schema.live import Outcome
from . import outcomes
from .foreign_run import ForeignRun

AGAIN: tuple[Outcome, ...] = ("waiting", "scheduled")
"""Where a job is that will run again."""


class EndingBackend:
    """Stands in for another backend, and looks like it to whoever asks for its class."""

    __slots__ = ("_backend",)

    def __init__(self, backend: Any) -> None:
        object.__setattr__(self, "_backend", backend)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._backend)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_backend"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._backend, name, value)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._backend.__reduce_ex__(protocol)

    def mark_as_done(self, task_id: str, result: Any, request: Any = None, *args: Any, **kwargs: Any) -> Any:
        """The task has returned."""
        run = ForeignRun.of(request)
        if run is not None and run.outcome is None:
            run.complete(outcomes.result(result))
        if _is_others_to_tell(run):
            return None
        return self._backend.mark_as_done(task_id, result, request, *args, **kwargs)

    def mark_as_failure(
        self, task_id: str, exc: BaseException, traceback: Any = None, request: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """The task has raised or rejected its message; or, in the main process, the process that ran it is gone."""
        run = ForeignRun.of(request)
        if run is not None and run.outcome is None:
            if not run.is_running and _is_shutting_down():
                run.requeue()
            else:
                run.fail(outcomes.failure(exc, traceback, is_final=type(exc).__name__ == "Reject"))
        if _is_others_to_tell(run) or (run is not None and run.is_failure_reported):
            return None
        if run is not None:
            run.is_failure_reported = True
            if run.outcome in AGAIN:
                return self._backend.mark_as_retry(task_id, exc, traceback, request=request)
        return self._backend.mark_as_failure(task_id, exc, traceback, request, *args, **kwargs)

    def mark_as_retry(
        self, task_id: str, exc: BaseException, traceback: Any = None, request: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """The task has published itself once more; or the main process has cancelled it, and it is to run elsewhere."""
        run = ForeignRun.of(request)
        if run is not None and run.outcome is None and not run.is_running:
            run.requeue()
        if _is_others_to_tell(run):
            return None
        return self._backend.mark_as_retry(task_id, exc, traceback, request, *args, **kwargs)

    def mark_as_revoked(self, task_id: str, reason: str = "", request: Any = None, *args: Any, **kwargs: Any) -> Any:
        """A worker discards the task, or has terminated it."""
        run = ForeignRun.of(request)
        if run is not None and run.outcome is None:
            if reason == "terminated" and _is_shutting_down():
                run.requeue()
                return self._backend.mark_as_retry(task_id, None, request=request)
            if reason == "revoked":
                run.cancel()
            else:
                run.fail(outcomes.revoked(reason))
        if _is_others_to_tell(run):
            return None
        return self._backend.mark_as_revoked(task_id, reason, request, *args, **kwargs)

    def store_result(
        self, task_id: str, result: Any, state: str, traceback: Any = None, request: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        """``update_state`` calls this."""
        run = ForeignRun.of(request) if state == outcomes.PROGRESS else None
        progress = outcomes.progress(result)
        if run is not None and progress is not None:
            run.progress(*progress)
        return self._backend.store_result(task_id, result, state, traceback, request, *args, **kwargs)


def _is_others_to_tell(run: ForeignRun | None) -> bool:
    """Whether a newer run of the same job and task reports to the user's backend, and this one must not."""
    return run is not None and run.outcome == "lost" and run.is_taken_again


class EndingProperty(property):
    """``Task.backend``, with an EndingBackend in the place of what it gives."""


def watch(task: Any) -> None:
    """Puts an EndingBackend before the backend of a task, and of all others that have theirs from the same place."""
    for owner in type(task).__mro__:
        known = vars(owner).get("backend")
        if isinstance(known, EndingProperty):
            return
        if isinstance(known, property):
            setattr(owner, "backend", _ending(known))  # noqa: B010 - a class of the app's
            return
        if known is not None:  # a backend of its own
            if "backend" not in vars(task):
                task.backend = EndingBackend(known)
            return


def _ending(known: property) -> EndingProperty:
    getter = known.fget
    assert getter is not None
    return EndingProperty(lambda task: EndingBackend(getter(task)), known.fset, known.fdel, known.__doc__)


def _is_shutting_down() -> bool:
    """Whether this worker goes down without waiting for its tasks."""
    state = sys.modules.get("celery.worker.state")
    should_terminate = getattr(state, "should_terminate", None)
    return should_terminate is not None and should_terminate is not False
