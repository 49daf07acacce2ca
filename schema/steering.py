"""Steering: what an operator does to the queues and jobs of one keyspace, each as one call, which somebody else sends.

``KeyFamily.steering`` makes one for a prefix; ``operations/steering.py`` sends the calls, one or all that match a filter, for the
command line, the web page and ``ferryman top``. Rules for every implementation:

1. It builds calls and reads replies; it never opens a connection. An action on a job is one Lua script: it happens whole or not
   at all, and an action that does not fit the job's state any more changes nothing and says so (``refused``, ``missing``).
2. A foreign family does what the original could do, by the original's own writes, with its events.
3. A job that a consumer holds is never touched.
4. Times are Unix ms. ``now`` is for tests; None is the server's clock.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping
from enum import StrEnum
from typing import Any, ClassVar, Literal

from attrs import asdict, frozen

from .connection.call import Call, Command
from .errors import UsageError
from .job import Job, State
from .text import show

MAX_PER_STEP = 1000
"""Jobs that one step of a bulk action looks at, at most. It ends sooner where they take longer than a few milliseconds."""

Value = str | float | bytes | None
"""What an action needs beside the job: the priority for REPRIORITISE, the payload for EDIT, the queue for MOVE."""


class Action(StrEnum):
    """What can be done to a job."""

    PROMOTE = "promote"
    """A scheduled job waits from now on."""
    REPRIORITISE = "reprioritise"
    """Another priority, in the family's own numbers; for a job that waits or is scheduled."""
    EDIT = "edit"
    """Another payload for a job that waits or is scheduled."""
    MOVE = "move"
    """To another queue of the same keyspace."""
    REQUEUE = "requeue"
    """A failed job waits again, with a clean record; where the system has it, a completed one too."""
    CANCEL = "cancel"
    """A job that nobody has begun never runs: what the system's own cancelling does."""
    DELETE = "delete"
    """Every trace of a job that nobody holds is gone."""


Outcome = Literal["done", "missing", "held", "refused", "more"]
"""``missing``: there is no such job. ``held``: a consumer has it. ``refused``: its state does not fit the action. ``more``: a
part of a very long work is done; the same call is to be sent again, as ``operations/steering.py`` does."""


@frozen
class JobFilter:
    """Which jobs of a queue and state are meant; what is None excludes none."""

    task: str | None = None
    """The name of the task, exactly."""
    older_than_ms: int | None = None
    """Created at least so long ago; who is dead, died so long ago."""
    younger_than_ms: int | None = None
    text: bytes | None = None
    """Bytes that the payload, as it stands in Redis, contains."""
    reason: str | None = None
    """Why it died: the reason's word exactly, or a part of its error."""

    def to_dict(self) -> dict[str, Any]:
        """What was said, for JSON."""
        said = {name: value for name, value in asdict(self).items() if value is not None}
        return said | ({} if self.text is None else {"text": show(self.text)})

    def fits(self, job: Job, now_ms: int, reason: str = "") -> bool:
        """Whether a job that was read is meant; ``reason``: the word for why it died, where the family has one."""
        ended = job.finished_at if job.state in (State.FAILED, State.CANCELLED, State.COMPLETED) else None
        began = ended if ended is not None else job.created_at
        age = None if began is None else now_ms - began
        return (
            self.task in (None, job.name)
            and (self.older_than_ms is None or (age is not None and age >= self.older_than_ms))
            and (self.younger_than_ms is None or (age is not None and age < self.younger_than_ms))
            and (self.text is None or self.text in (job.payload or b""))
            and (self.reason is None or self.reason == reason or self.reason in (job.error or ""))
        )


@frozen
class BulkStep:
    """What one step of a bulk action has done."""

    looked_at: int
    done: int
    """Jobs on which the action was done; with ``dry_run``, would be."""
    left: int
    """Jobs that match and could not be acted on."""
    next: str | None
    """Where the next step goes on; None: that was all."""
    unread: tuple[str, ...] = ()
    """Jobs too large to be searched in the server: the caller reads each by ``Steering.job`` and acts on it by itself."""
    removed: tuple[tuple[str, bytes], ...] = ()
    """The ids and messages of the jobs that CANCEL has removed, if that was asked for. Some 300 kB at most."""
    moving: int = 0
    """Of the jobs done by MOVE, how many are on the way still: ``Steering.settle`` brings them."""


class Steering(ABC):
    """The actions on one keyspace. An implementation names in ``actions`` what it can do; other calls raise UsageError."""

    actions: ClassVar[Mapping[Action, frozenset[State]]] = {}
    """Action -> states in which a job can be acted on."""
    can_pause: ClassVar[bool] = False
    """Whether queues can be paused: publishing goes on, nothing is taken until they are resumed, restarts or not."""

    @abstractmethod
    def act(self, action: Action, queue: str, job_id: str, value: Value = None, *, now: int | None = None) -> Call[Outcome]:
        """One action on one job.

        Raises UsageError for an action that the family can't do, and for a value that can't be, here or from the reply.
        """

    def act_on_matching(
        self,
        action: Action,
        queue: str,
        state: State,
        chosen: JobFilter,
        value: Value = None,
        *,
        cursor: str | None = None,
        limit: int = MAX_PER_STEP,
        dry_run: bool = False,
        with_removed: bool = False,
        one_server: bool = False,
        now: int | None = None,
    ) -> Call[BulkStep] | None:
        """One bounded step of an action on all jobs of a state that match, in the server; the next one from ``BulkStep.next``.

        Jobs that come meanwhile may or may not be among them; none is acted on twice. None: the family has no such script, and
        the caller reads pages and acts on each job by itself. ``with_removed``: a CANCEL gives the messages that it has removed.
        ``one_server``: the keyspace is not on a cluster, whose scripts reach one queue only.
        """
        return None

    def job(self, queue: str, job_id: str) -> Command[tuple[Job, str] | None]:
        """A job as it stands there and the word for why it died, for ``BulkStep.unread``; None for one that has gone."""
        raise UsageError("jobs of this system are read from its pages, and not one by one")

    def check(self, action: Action, queue: str, value: Value = None) -> Call[Any] | Command[Any] | None:
        """What to ask before an action, one or all that match; None: nothing. Its reply raises UsageError where it can't be."""
        return None

    def settle(
        self, queue: str, *, now: int | None = None
    ) -> Generator[list[Call[Any] | Command[Any]], list[Any], dict[str, Outcome]]:
        """Ends what one call can't: brings jobs on the way to another queue there, those whose mover has died included.

        Yields calls to send together, is sent their results, and returns what became of each job. To be run after each MOVE, and
        before any other action on the queue. ``refused``: there is no room for the job in the other queue. It stays on the way.
        """
        yield from ()
        return {}

    def pause(self, queue: str, *, now: int | None = None) -> Call[bool]:
        """No consumer is given a job of the queue until ``resume``. False: it was paused already.

        Raises UsageError from the reply where there is no such queue.
        """
        raise UsageError("this system knows no paused queues")

    def resume(self, queue: str, *, now: int | None = None) -> Call[bool]:
        """Consumers are given jobs again, and are woken. False: it was not paused."""
        raise UsageError("this system knows no paused queues")

    def paused(self, queue: str) -> Call[bool] | Command[bool] | None:
        """Whether a queue is paused; None where the family knows no pauses."""
        return None
