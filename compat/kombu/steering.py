"""Steering of kombu: deleting messages that wait. Called by ``family.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...schema.connection.call import Argument, Call
from ...schema.job import State
from ...schema.steering import Action, Outcome
from ..steering import ForeignSteering, outcome_of_removal


class KombuSteering(ForeignSteering):
    """kombu itself purges whole queues only. Looks for a message among the 20,000 that run next."""

    title: ClassVar[str] = "kombu"
    actions: ClassVar[Mapping[Action, frozenset[State]]] = {
        Action.CANCEL: frozenset({State.WAITING}),
        Action.DELETE: frozenset({State.WAITING}),
    }

    def _steer(self, queue: str, job_id: str, action: Action, told: Argument, now: int | None) -> Call[Outcome]:
        return outcome_of_removal(self.live.remove(queue, job_id, now=now))
