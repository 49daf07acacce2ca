"""Steering of bee: cancelling, and jobs due before their time. Called by ``family.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from attrs import frozen

from ...schema.connection.call import Argument, Call
from ...schema.job import State
from ...schema.steering import Action, Outcome
from ..steering import ForeignSteering
from .live import BeeLive


@frozen
class BeeSteering(ForeignSteering):
    """bee itself knows no more than to cancel: options are fixed when a job is put, and what has ended expires."""

    live: BeeLive

    title: ClassVar[str] = "bee"
    actions: ClassVar[Mapping[Action, frozenset[State]]] = {
        Action.PROMOTE: frozenset({State.SCHEDULED}),
        Action.CANCEL: frozenset({State.WAITING, State.SCHEDULED, State.BLOCKED}),
    }

    def _steer(self, queue: str, job_id: str, action: Action, told: Argument, now: int | None) -> Call[Outcome]:
        return self.live.steer(queue, job_id, action, told, now=now)
