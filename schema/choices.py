"""Choices: what a user decides about repairs that keys alone can't: which jobs that a worker has shall wait again.

A worker that is gone leaves the same keys as one that is busy, so a family asks ``check`` before it takes a job away from one.
Pure. Made by the command line, passed through ``migrations/repair.py`` to ``KeyFamily.repair``.
"""

from __future__ import annotations

from attrs import frozen

from .errors import Unrepairable
from .text import show, span


class NotChosen(Unrepairable):
    """The job is none of those that the user has chosen; it is left alone."""


@frozen
class Choices:
    """What was chosen; by default nothing."""

    older_than: int | None = None
    """ms: jobs that have given no sign for longer."""
    workers: frozenset[str] = frozenset()
    """Jobs that one of these has."""
    requeue: bool = False
    """A job of which no key tells the state waits."""

    def check(self, now_ms: int, since: float | None, worker: str | None) -> None:
        """Raises NotChosen for a job that was not chosen, and Unrepairable where that can't be told.

        ``since``: its last sign, Unix ms; ``worker``: who has it. None where the family's keys don't say.
        """
        if self.older_than is None and not self.workers:
            by = "--older-than" if worker is None else "--worker" if since is None else "--older-than or --worker"
            raise Unrepairable(f"keys can't tell whether its worker lives: choose the jobs with {by}")
        if self.workers and worker is None:
            raise Unrepairable("no key says which worker has it: choose it with --older-than alone")
        if self.older_than is not None and since is None:
            raise Unrepairable("no key says since when: choose it with --worker alone")
        if self.workers and worker not in self.workers:
            raise NotChosen(f"worker {show(worker or '', 80)!r} has it, who is not named")
        if self.older_than is not None and since is not None and now_ms - since <= self.older_than:
            raise NotChosen(
                f"its last sign was {span(max(0, now_ms - since))} ago, which is not longer than {span(self.older_than)}"
            )


NO_CHOICES = Choices()
