"""Steering of kickq: deleting jobs, and queueing them before they are due. Called by ``family.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from attrs import frozen

from ...schema.connection.call import Argument, Call
from ...schema.job import State
from ...schema.steering import Action, Outcome
from ..steering import ForeignSteering
from .live import KickqLive

WAITS = frozenset({State.WAITING, State.SCHEDULED})


@frozen
class KickqSteering(ForeignSteering):
    """kickq has no commands for jobs that were made: it never runs a failed one again, and knows no priorities."""

    live: KickqLive

    title: ClassVar[str] = "kickq"
    actions: ClassVar[Mapping[Action, frozenset[State]]] = {
        Action.PROMOTE: frozenset({State.SCHEDULED}),
        Action.CANCEL: WAITS,
        Action.DELETE: WAITS | {State.FAILED, State.COMPLETED},
    }

    def _steer(self, queue: str, job_id: str, action: Action, told: Argument, now: int | None) -> Call[Outcome]:
        return self.live.steer(queue, job_id, action, told, now=now)
