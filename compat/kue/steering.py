"""Steering of kue: what its page and its HTTP interface do, one ``lua/steer.lua`` each. Called by ``family.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from attrs import frozen

from ...schema.connection.call import Argument, Call
from ...schema.job import State
from ...schema.steering import Action, Outcome
from ..steering import ForeignSteering
from .live import KueLive

WAITS = frozenset({State.WAITING, State.SCHEDULED})
ENDED = frozenset({State.FAILED, State.COMPLETED})


@frozen
class KueSteering(ForeignSteering):
    """A restarted job keeps its attempts, error and log, as in kue; one without attempts left runs once more."""

    live: KueLive

    title: ClassVar[str] = "kue"
    actions: ClassVar[Mapping[Action, frozenset[State]]] = {
        Action.PROMOTE: frozenset({State.SCHEDULED}),
        Action.REPRIORITISE: WAITS,
        Action.EDIT: WAITS,
        Action.REQUEUE: ENDED,
        Action.CANCEL: WAITS,
        Action.DELETE: WAITS | ENDED,
    }

    def _steer(self, queue: str, job_id: str, action: Action, told: Argument, now: int | None) -> Call[Outcome]:
        return self.live.steer(queue, job_id, action, told, now=now)
