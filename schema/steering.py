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
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import ClassVar, Literal

from attrs import frozen

from .connection.call import Call
from .job import State

MAX_PER_STEP = 1000
"""Jobs that one step of a bulk action looks at, at most: some milliseconds of the server's time."""


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


Outcome = Literal["done", "missing", "held", "refused"]
"""``missing``: there is no such job. ``held``: a consumer has it. ``refused``: its state does not fit the action."""


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


class Steering(ABC):
    """The actions on one keyspace. An implementation names in ``actions`` what it can do; other calls raise UsageError."""

    actions: ClassVar[Mapping[Action, frozenset[State]]] = {}
    """Action -> states in which a job can be acted on."""
    can_pause: ClassVar[bool] = False
    """Whether queues can be paused: publishing goes on, nothing is taken until they are resumed, restarts or not."""

    @abstractmethod
    def act(
        self, action: Action, queue: str, job_id: str, value: str | float | bytes | None = None, *, now: int | None = None
    ) -> Call[Outcome]:
        """One action on one job. ``value``: the priority for REPRIORITISE, the payload for EDIT, the queue for MOVE.

        Raises UsageError for an action that the family can't do, and for a value that can't be.
        """

    def act_on_matching(
        self,
        action: Action,
        queue: str,
        state: State,
        chosen: JobFilter,
        value: str | float | bytes | None = None,
        *,
        cursor: str | None = None,
        limit: int = MAX_PER_STEP,
        dry_run: bool = False,
        now: int | None = None,
    ) -> Call[BulkStep] | None:
        """One bounded step of an action on all jobs of a state that match, in the server; the next one from ``BulkStep.next``.

        Jobs that come meanwhile may or may not be among them; none is acted on twice. None: the family has no such script, and
        the caller reads pages and acts on each job by itself.
        """
        return None

    def pause(self, queue: str, *, now: int | None = None) -> Call[bool]:
        """No consumer is given a job of the queue until ``resume``. False: it was paused already."""
        raise NotImplementedError

    def resume(self, queue: str, *, now: int | None = None) -> Call[bool]:
        """Consumers are given jobs again, and are woken. False: it was not paused."""
        raise NotImplementedError

    def paused(self, queues: Iterable[str]) -> Call[frozenset[str]] | None:
        """Which of these queues are paused; None where the family knows no pauses."""
        return None
