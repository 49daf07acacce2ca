"""Steering of kickq: deleting jobs, and queueing them before they are due. Called by ``family.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...schema.job import State
from ...schema.steering import Action
from ..steering import ForeignSteering

WAITS = frozenset({State.WAITING, State.SCHEDULED})


class KickqSteering(ForeignSteering):
    """kickq has no commands for jobs that were made: it never runs a failed one again, and knows no priorities."""

    title: ClassVar[str] = "kickq"
    actions: ClassVar[Mapping[Action, frozenset[State]]] = {
        Action.PROMOTE: frozenset({State.SCHEDULED}),
        Action.CANCEL: WAITS,
        Action.DELETE: WAITS | {State.FAILED, State.COMPLETED},
    }
