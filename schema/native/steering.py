"""Steering of ferryman's own queues: what operators do to queues and jobs, as calls of scripts.

The transitions stand in ``scripts/lua/_steering.lua``; this builds calls and reads replies. ``family.py`` makes one for a prefix,
``operations/steering.py`` sends the calls.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from attrs import field, frozen

from ..connection.call import Argument, Call, Command
from ..errors import MalformedValue, UsageError
from ..job import Job, State
from ..steering import MAX_PER_STEP, Action, BulkStep, JobFilter, Outcome, Steering, Value
from ..text import load_json, to_bytes, to_text
from . import keys
from .record import Stored, canonical
from .scripts.loader import script
from .scripts.publication import optional
from .scripts.queue_scripts import queue_keys
from .scripts.script_replies import result
from .scripts.waiting_score import check_priority

STEP_MICROSECONDS = 1500
"""For how long one step of a bulk action goes on looking at more jobs: others wait meanwhile."""
MAX_REPR = 1024
"""Characters of a task's arguments in the headers that monitors show, as Celery cuts them."""

_WAITS = frozenset({State.WAITING, State.SCHEDULED, State.BLOCKED})
_ENDED = frozenset({State.FAILED, State.CANCELLED})


@frozen
class NativeSteering(Steering):
    """The actions on the queues under one prefix."""

    prefix: str = field(default=keys.DEFAULT_PREFIX)

    actions: ClassVar[Mapping[Action, frozenset[State]]] = {
        Action.PROMOTE: frozenset({State.SCHEDULED}),
        Action.REPRIORITISE: _WAITS,
        Action.EDIT: _WAITS,
        Action.REQUEUE: _ENDED,
        Action.CANCEL: _WAITS,
        Action.DELETE: _WAITS | _ENDED | {State.COMPLETED},
    }
    can_pause: ClassVar[bool] = True

    def __attrs_post_init__(self) -> None:
        keys.check_prefix(self.prefix)

    def act(self, action: Action, queue: str, job_id: str, value: Value = None, *, now: int | None = None) -> Call[Outcome]:
        args = (str(action), to_bytes(job_id), *self._needs(action, value))
        return self._call("steer", queue, now, args, lambda reply: reply.decode())

    def act_on_matching(
        self,
        action: Action,
        queue: str,
        state: State,
        chosen: JobFilter,
        value: Value = None,
        *,
        cursor: str | None = None,
        limit: int = MAX_PER_STEP,
        dry_run: bool = False,
        now: int | None = None,
    ) -> Call[BulkStep]:
        needs = self._needs(action, value)
        if state not in self.actions[action]:
            raise UsageError(f"{action} does nothing to a {state} job; it is for {_list(self.actions[action])} ones")
        if limit <= 0:
            raise UsageError(f"limit {limit!r} must be above 0")
        task = chosen.task or ""
        args: tuple[Argument, ...] = (
            *(str(action), str(state), cursor or "", limit, STEP_MICROSECONDS, 1 if dry_run else ""),
            *(to_bytes(task), to_bytes(json.dumps(task, ensure_ascii=False)), optional(chosen.older_than_ms)),
            *(optional(chosen.younger_than_ms), chosen.text or b"", to_bytes(chosen.reason or "")),
            *needs,
        )
        return self._call("steer_matching", queue, now, args, _step)

    def job(self, queue: str, job_id: str) -> Command[tuple[Job, str] | None]:
        """See Steering.job. Where it stands follows from its hash alone: dead with a reason, else waiting."""

        def parse(reply: Any) -> tuple[Job, str] | None:
            fields = reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))
            if not fields:
                return None
            role = "dead" if b"reason" in fields else "waiting"
            return canonical(job_id, queue, Stored(fields, role)), to_text(fields.get(b"reason", b""))

        return Command(("HGETALL", queue_keys(self.prefix, queue).job(job_id)), parse)

    def pause(self, queue: str, *, now: int | None = None) -> Call[bool]:
        return self._call("pause", queue, now, (), bool)

    def resume(self, queue: str, *, now: int | None = None) -> Call[bool]:
        return self._call("resume", queue, now, (), bool)

    def paused(self, queue: str) -> Command[bool]:
        return Command(("HEXISTS", queue_keys(self.prefix, queue).meta, "paused"), bool)

    def _needs(self, action: Action, value: Value) -> tuple[Argument, ...]:
        """What the scripts get beside the job. Raises UsageError."""
        if action not in self.actions:
            raise UsageError(f"{action} is nothing that can be done to jobs of ferryman's own queues")
        if action is Action.REPRIORITISE:
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            return (check_priority(value),)
        if action is Action.EDIT:
            if not isinstance(value, bytes):
                raise UsageError("edit needs the new payload, as bytes")
            return _payload(value)
        if value is not None:
            raise UsageError(f"{action} takes no value")
        return ()

    def _call(self, name: str, queue: str, now: int | None, args: Sequence[Argument], parse: Any) -> Call[Any]:
        all_keys = queue_keys(self.prefix, queue).fixed
        return Call(script(name), all_keys, (optional(now), *args), lambda reply: parse(result(reply, f"queue {queue!r}")))


def _step(reply: Any) -> BulkStep:
    looked_at, done, left, cursor, unread = reply
    return BulkStep(looked_at, done, left, to_text(cursor) or None, tuple(map(to_text, unread)))


def _payload(payload: bytes) -> tuple[Argument, ...]:
    """An edited payload, what it is, and how a task's arguments read in its headers (``_steering.lua``)."""
    try:
        value = load_json(payload)
    except MalformedValue:
        return payload, "other", '""', '""'
    match value:
        case [list() as args, dict() as kwargs, dict()]:
            return payload, "task", _shown(tuple(args)), _shown(kwargs)
    return payload, "json", '""', '""'


def _shown(value: object) -> str:
    text = repr(value)
    return json.dumps(text if len(text) <= MAX_REPR else text[: MAX_REPR - 3] + "...")


def _list(states: frozenset[State]) -> str:
    return ", ".join(str(state) for state in State if state in states)
