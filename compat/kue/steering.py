"""Steering of kue: what its page and its HTTP interface do, one ``lua/steer.lua`` each. Called by ``family.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...schema.job import State
from ...schema.steering import Action
from ..steering import ForeignSteering

WAITS = frozenset({State.WAITING, State.SCHEDULED})
ENDED = frozenset({State.FAILED, State.COMPLETED})


class KueSteering(ForeignSteering):
    """A restarted job keeps its attempts, error and log, as in kue; one without attempts left runs once more."""

    title: ClassVar[str] = "kue"
    actions: ClassVar[Mapping[Action, frozenset[State]]] = {
        Action.PROMOTE: frozenset({State.SCHEDULED}),
        Action.REPRIORITISE: WAITS,
        Action.EDIT: WAITS,
        Action.REQUEUE: ENDED,
        Action.CANCEL: WAITS,
        Action.DELETE: WAITS | ENDED,
    }
