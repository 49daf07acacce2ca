"""Steering of bee: cancelling, and jobs due before their time. Called by ``family.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ...schema.job import State
from ...schema.steering import Action
from ..steering import ForeignSteering


class BeeSteering(ForeignSteering):
    """bee itself knows no more than to cancel: options are fixed when a job is put, and what has ended expires."""

    title: ClassVar[str] = "bee"
    actions: ClassVar[Mapping[Action, frozenset[State]]] = {
        Action.PROMOTE: frozenset({State.SCHEDULED}),
        Action.CANCEL: frozenset({State.WAITING, State.SCHEDULED, State.BLOCKED}),
    }
