"""Steering of qless and reqless: what their clients and web page do. Called by ``family.py``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from attrs import frozen

from ...schema.connection.call import Argument, Call, Command
from ...schema.errors import UsageError
from ...schema.job import State
from ...schema.steering import Action, Value
from ...schema.text import to_bytes
from ..steering import ForeignSteering
from .live import QlessLive, check_data

WAITS = frozenset({State.WAITING, State.SCHEDULED, State.BLOCKED})


@frozen
class QlessSteering(ForeignSteering):
    """Cancelling a job deletes it, as in qless; one that others wait for is refused. A paused queue is paused for all clients."""

    live: QlessLive

    title: ClassVar[str] = "qless"
    actions: ClassVar[Mapping[Action, frozenset[State]]] = {
        Action.PROMOTE: frozenset({State.SCHEDULED}),
        Action.REPRIORITISE: WAITS,
        Action.EDIT: WAITS,
        Action.REQUEUE: frozenset({State.FAILED, State.COMPLETED}),
        Action.MOVE: frozenset({State.WAITING, State.SCHEDULED}),
        Action.CANCEL: WAITS,
        Action.DELETE: WAITS | {State.FAILED},
    }
    can_pause: ClassVar[bool] = True

    def _told(self, action: Action, value: Value) -> Argument:
        told = super()._told(action, value)
        return check_data(told) if action is Action.EDIT and isinstance(told, bytes) else told

    def check(self, action: Action, queue: str, value: Value = None) -> None:
        if action is Action.MOVE and value == queue:
            raise UsageError(f"queue {queue!r} is where the jobs are already; name another queue to move them to")

    def pause(self, queue: str, *, now: int | None = None) -> Call[bool]:
        return self.live.on_queue("pause", queue, now, (1,), bool)

    def resume(self, queue: str, *, now: int | None = None) -> Call[bool]:
        return self.live.on_queue("pause", queue, now, (0,), bool)

    def paused(self, queue: str) -> Command[bool]:
        return Command(("SISMEMBER", f"{self.live.prefix}:paused_queues", to_bytes(queue)), bool)
