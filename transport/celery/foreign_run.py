"""ForeignRun: one run of another system's job as a Celery task, and its end, which is written once.

The process that runs the task ends the job, because only there the return value and the traceback are whole; the worker's main
process ends those of processes that are gone. Celery acks most messages before the task begins, so its acks say nothing here.
A run goes with its request: pickled into a pool's process, where it is another object of the same job; the same object on pools
of threads. ``of`` finds it again. Made by ``foreign_request.py``, ended by ``ending_backend.py``, ``foreign_trace.py`` and
``foreign_retry.py``. Never raises for an end that could not be written: ``outcome`` is None then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from attrs import frozen

from ...schema.connection.address import Address
from ...schema.connection.call import Call
from ...schema.live import Failure, ForeignFamily, Outcome
from .end_flags import flags
from .end_link import ERRORS, EndLink, end_link

T = TypeVar("T")

logger = logging.getLogger("ferryman.transport")

HEADER = "ferryman"
"""The header of a message that is another system's job: ``{"family", "prefix", "queue", "id", "attempts", "max_attempts"}``."""
CONSUMER = "ferryman_consumer"
"""The property that names the consumer that holds it."""
LIMIT = "ferryman_time_limit"
"""The property that says how many seconds the system lets a run take."""
RUN = "ferryman_run"
"""Where the run stands among the properties of a request."""

BRIEFLY = 1.0
"""Seconds for which the worker's main process, which has others to serve, tries to write the end of a job."""


@frozen
class HeldJob:
    """A job and who holds it."""

    family: str
    queue: str
    id: str
    consumer: str

    @classmethod
    def of(cls, headers: Mapping[str, Any], properties: Mapping[str, Any]) -> HeldJob | None:
        """The job that a message is; None for a message that is none."""
        match headers.get(HEADER), properties.get(CONSUMER):
            case {"family": str(family), "queue": str(queue), "id": str(job_id)}, str(consumer):
                return cls(family, queue, job_id, consumer)
            case _:
                return None

    def __str__(self) -> str:
        return f"job {self.id} of {self.family} queue {self.queue!r}"


class ForeignRun:
    """One run of one job."""

    def __init__(self, job: HeldJob, task_id: str, address: Address, flag: int | None = None) -> None:
        """``address``: the server and keyspace that the job was taken from. ``flag``: of ``end_flags.flags``."""
        self.job = job
        self.task_id = task_id
        self.outcome: Outcome | None = None
        """Where the job is after its end, as far as this process knows; None: it has not ended, or that could not be written."""
        self.is_unwritten = False
        """Whether an end could not be written."""
        self.is_failure_reported = False
        """Whether the user's backend knows of the failure. Celery reports that of a hard time limit twice."""
        self.is_running = False
        """Whether the task runs in this process, which may wait for a server that is away."""
        self._address = address
        self._flag = flag
        self._is_taken_again = False
        self._app: Any = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ForeignRun, (self.job, self.task_id, self._address, self._flag)

    def __repr__(self) -> str:
        return f"<ForeignRun {self.job}>"

    @staticmethod
    def of(request: Any) -> ForeignRun | None:
        """The run that a request is about: Celery's context of a task, or what stands in for one."""
        properties = getattr(request, "properties", None)
        found = properties.get(RUN) if isinstance(properties, dict) else None
        return found if isinstance(found, ForeignRun) else None

    def bind(self, app: Any) -> None:
        """Says whose tasks they are, before any end: the app knows how to connect."""
        self._app = app

    @property
    def is_ending(self) -> bool:
        """Whether the end has been written or is being written, in whichever process."""
        return self.outcome is not None or (self._flag is not None and flags.is_set(self._flag))

    @property
    def is_taken_again(self) -> bool:
        """Whether this worker has taken the job again: the end of this run would end the newer one."""
        return self._is_taken_again or (self._flag is not None and flags.is_taken_again(self._flag))

    def set_taken_again(self) -> None:
        """Say so. A process that has not begun to write the end does not write it any more."""
        self._is_taken_again = True
        if self._flag is not None:
            flags.set_taken_again(self._flag)

    def give_flag_back(self) -> None:
        """The run is over, and nobody asks any more."""
        flag, self._flag = self._flag, None
        if flag is not None:
            flags.give_back(flag)

    # Ends

    def complete(self, result: bytes | None) -> Outcome | None:
        """The task has returned. ``result``: JSON text."""
        job = self.job
        return self._end(
            "its result", lambda family: family.complete(job.queue, job.consumer, [(job.id, result)]), lambda reply: reply[0]
        )

    def fail(self, failure: Failure) -> Outcome | None:
        """The task has raised, or its process is gone."""
        job = self.job
        return self._end("its failure", lambda family: family.fail(job.queue, job.consumer, job.id, failure), _same)

    def retry(self, delay_ms: int, failure: Failure, payload: bytes | None, extra: bytes | None) -> Outcome | None:
        """The task wants to run again later. ``payload`` and ``extra`` None: as they are."""
        job = self.job
        return self._end(
            "its retry",
            lambda family: family.retry(job.queue, job.consumer, job.id, delay_ms, failure=failure, payload=payload, extra=extra),
            _same,
        )

    def requeue(self) -> Outcome | None:
        """The job is to wait again as if it had not been taken."""
        job = self.job
        return self._end("its return to the queue", lambda family: family.requeue(job.queue, job.consumer, [job.id]), _requeued)

    def cancel(self) -> Outcome | None:
        """The job, which nobody has begun, is not to run at all."""
        if self.requeue() == "waiting":
            job = self.job
            self.outcome = None
            self._end("its removal", lambda family: family.remove(job.queue, job.id), _removed)
        return self.outcome

    def learn(self, outcome: Outcome) -> None:
        """Another process has ended it."""
        self.outcome = outcome

    def lose(self) -> None:
        """The job was cancelled, failed or given to others: this run has nothing to say any more."""
        if self.outcome is None:
            self.outcome = "lost"
            logger.warning(
                "%s (task %s) was ended or taken away while it ran here; its end is not written", self.job, self.task_id
            )

    def progress(self, current: float, total: float, data: bytes | None) -> None:
        """Notes how far the task is."""
        if self.is_taken_again:
            self.lose()
        if self.outcome is not None:
            return
        job = self.job
        try:
            is_held, _ = self._link().run(
                lambda family: family.progress(job.queue, job.consumer, job.id, current, total, data), BRIEFLY
            )
        except ERRORS as error:
            logger.warning("the progress of %s can't be noted: %s", job, error)
            return
        if not is_held:
            self.lose()

    def _end(self, what: str, build: Callable[[ForeignFamily], Call[T]], outcome_of: Callable[[T], Outcome]) -> Outcome | None:
        """Writes an end, unless there is one. ``outcome_of`` reads the call's result."""
        if self.outcome is not None:
            return self.outcome
        if self._flag is not None:
            flags.set(self._flag)
        if self.is_taken_again:  # asked after the flag is set, as the main process asks after it has set the other one
            self.lose()
            return self.outcome
        try:
            link = self._link()
            reply, is_repeated = link.run(build, link.lease if self.is_running else BRIEFLY)
        except ERRORS as error:
            self.is_unwritten = True
            logger.error("%s (task %s) has ended, but %s can't be written: %s", self.job, self.task_id, what, error)
            return None
        outcome = outcome_of(reply)
        if outcome == "lost" and not is_repeated:
            self.lose()
        self.outcome = outcome
        return outcome

    def _link(self) -> EndLink:
        return end_link(self._app, self._address)


def _same(outcome: Outcome) -> Outcome:
    return outcome


def _requeued(reply: tuple[bool, ...]) -> Outcome:
    return "waiting" if reply[0] else "lost"


def _removed(was_in: object) -> Outcome:
    return "removed" if was_in is not None else "lost"
