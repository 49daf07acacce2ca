"""Steering of pjq: deleting jobs. Called by ``family.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...schema.connection.call import Argument, Call
from ...schema.job import State
from ...schema.steering import Action, Outcome
from ..steering import ForeignSteering, outcome_of_removal


class PjqSteering(ForeignSteering):
    """pjq itself has no word for any of it: jobs are added, given out and finished."""

    title: ClassVar[str] = "pjq"
    actions: ClassVar[Mapping[Action, frozenset[State]]] = {
        Action.DELETE: frozenset({State.WAITING, State.COMPLETED, State.FAILED}),
    }

    def _steer(self, queue: str, job_id: str, action: Action, told: Argument, now: int | None) -> Call[Outcome]:
        return outcome_of_removal(self.live.remove(queue, job_id, now=now))
