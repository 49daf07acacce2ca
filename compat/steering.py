"""Steering of other systems' keyspaces: what an operator may do there, mostly by the family's own ``lua/steer.lua``.

A family says in ``actions`` what it can do and how a value is told to its script. ``family.py`` of each makes one for a prefix;
``operations/steering.py`` sends the calls. See ``schema/steering.py`` for the rules.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from attrs import frozen

from ..schema.connection.call import Argument, Call
from ..schema.errors import UsageError
from ..schema.native.scripts.results import Removed
from ..schema.steering import Action, Outcome, Steering, Value
from ..schema.text import is_json, is_unicode, to_bytes
from .live import ScriptedFamily


@frozen
class ForeignSteering(Steering):
    """The actions on one foreign keyspace."""

    live: ScriptedFamily

    title: ClassVar[str]
    """What people call the system."""

    def act(self, action: Action, queue: str, job_id: str, value: Value = None, *, now: int | None = None) -> Call[Outcome]:
        if action not in self.actions:
            able = ", ".join(sorted(self.actions))
            raise UsageError(f"{self.title} knows no way to {action} a job; what can be done: {able}")
        return self._steer(queue, job_id, action, self._told(action, value), now)

    def _steer(self, queue: str, job_id: str, action: Action, told: Argument, now: int | None) -> Call[Outcome]:
        """The call for an action of which all is checked; ``told``: its value, as scripts take it."""
        return self.live.steer(queue, job_id, action, told, now=now)

    def _told(self, action: Action, value: Value) -> Argument:
        """The value as the script takes it; '' where the action needs none. Raises UsageError."""
        match action:
            case Action.REPRIORITISE:
                return priority_of(value)
            case Action.EDIT:
                return payload_of(value, self.title)
            case Action.MOVE:
                return queue_of(value)
        if value is not None:
            raise UsageError(f"{action} takes no value")
        return ""


def priority_of(value: Value) -> str:
    """A priority as text. Raises UsageError for what is no finite number."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise UsageError(f"priority {value!r} must be a number") from error
    if not math.isfinite(number):
        raise UsageError(f"priority {value!r} must be a finite number")
    return str(int(number)) if number.is_integer() else repr(number)


def payload_of(value: Value, title: str) -> bytes:
    """A payload. Raises UsageError for what is no JSON."""
    payload = to_bytes(value) if isinstance(value, str) else value
    if not isinstance(payload, bytes) or not is_json(payload):
        raise UsageError(f"the payload of a job of {title} is JSON text")
    return payload


def queue_of(value: Value) -> bytes:
    """The name of a queue. Raises UsageError."""
    if not isinstance(value, str) or not value or not is_unicode(value):
        raise UsageError("a job is moved to a queue whose name has UTF-8 bytes and is not empty")
    return to_bytes(value)


def outcome_of_removal(call: Call[Removed | None]) -> Call[Outcome]:
    """A call of ``remove`` of a live family, as an action that deletes."""

    def parse(reply: Any) -> Outcome:
        was_in = call.parse(reply)
        return "missing" if was_in is None else "held" if was_in == "held" else "done"

    return Call(call.script, call.keys, call.args, parse)
