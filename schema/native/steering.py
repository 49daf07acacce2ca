"""Steering of ferryman's own queues: what operators do to queues and jobs, as calls of scripts.

The transitions stand in ``scripts/lua/_steering.lua``; this builds calls and reads replies. ``family.py`` makes one for a prefix,
``operations/steering.py`` sends the calls.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, ClassVar

from attrs import field, frozen

from ..connection.call import Argument, Call, Command
from ..errors import MalformedValue, UsageError
from ..job import Job, State
from ..steering import MAX_PER_STEP, Action, BulkStep, JobFilter, Outcome, Steering, Value
from ..text import is_unicode, load_json, to_bytes, to_text
from . import codec, keys
from .keys import escape
from .record import Stored, canonical
from .scripts.loader import script
from .scripts.publication import optional
from .scripts.queue_scripts import queue_keys
from .scripts.script_replies import result
from .scripts.waiting_score import ASCENDING, DESCENDING, PriorityOrder, check_priority, priority_of

STEP_MICROSECONDS = 2000
"""For how long one step of a bulk action goes on looking at more jobs: others wait meanwhile."""
MAX_MOVES = 100
"""Jobs that go to other queues at once."""
MOVES_REMEMBERED_MS = 7 * 86_400_000
"""For how long a queue knows what has come from another one: a move that was cut off can be ended so long."""
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
        Action.MOVE: frozenset({State.WAITING, State.SCHEDULED, State.FAILED, State.CANCELLED}),
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
        with_removed: bool = False,
        one_server: bool = False,
        now: int | None = None,
    ) -> Call[BulkStep]:
        needs = (1,) if action is Action.CANCEL and with_removed else self._needs(action, value)
        if state not in self.actions[action]:
            raise UsageError(f"{action} does nothing to {state} jobs; it is for {_list(self.actions[action])} ones")
        if limit <= 0:
            raise UsageError(f"limit {limit!r} must be above 0")
        task = chosen.task or ""
        args: tuple[Argument, ...] = (
            *(str(action), str(state), cursor or "", limit, STEP_MICROSECONDS, 1 if dry_run else ""),
            *(to_bytes(task), to_bytes(json.dumps(task, ensure_ascii=False)), optional(chosen.older_than_ms)),
            *(optional(chosen.younger_than_ms), chosen.text or b"", to_bytes(chosen.reason or "")),
            *needs,
        )
        there: tuple[bytes, ...] = ()
        if action is Action.MOVE and one_server and is_unicode(queue) and is_unicode(target := str(value)):
            there = queue_keys(self.prefix, target).fixed
            args += (to_bytes(queue), to_bytes(json.dumps(target, ensure_ascii=False)))
        return self._call("steer_matching", queue, now, args, _step, there)

    def job(self, queue: str, job_id: str) -> Command[tuple[Job, str] | None]:
        """See Steering.job. Where it stands follows from its hash alone: dead with a reason, else waiting."""

        def parse(reply: Any) -> tuple[Job, str] | None:
            fields = _fields(reply)
            if not fields:
                return None
            role = "dead" if b"reason" in fields else "waiting"
            return canonical(job_id, queue, Stored(fields, role)), to_text(fields.get(b"reason", b""))

        return Command(("HGETALL", queue_keys(self.prefix, queue).job(job_id)), parse)

    def check(self, action: Action, queue: str, value: Value = None) -> Call[None] | None:
        """That the queue to move to is there, and takes more."""
        if action is not Action.MOVE:
            return None
        self._needs(action, value)
        target = str(value)
        if target == queue:
            raise UsageError(f"queue {queue!r} is where the jobs are already; name another queue to move them to")
        return self._call("room", target, None, (), lambda _: None)

    def settle(
        self, queue: str, *, now: int | None = None
    ) -> Generator[list[Call[Any] | Command[Any]], list[Any], dict[str, Outcome]]:
        outcomes: dict[str, Outcome] = {}
        full: set[str] = set()  # nothing goes there behind what was refused: a queue remembers the highest number that has come
        while True:
            refused = sum(outcome == "refused" for outcome in outcomes.values())
            (moves,) = yield [self._call("moves", queue, now, (refused, MAX_MOVES), _moves)]
            if not moves:
                return outcomes
            hashes = yield [Command(("HGETALL", queue_keys(self.prefix, queue).job(move.id)), _fields) for move in moves]
            by_target: dict[str, list[tuple[Move, dict[bytes, bytes]]]] = {}
            for move, fields in zip(moves, hashes, strict=True):
                by_target.setdefault(move.target, []).append((move, fields))
            for target in full & by_target.keys():
                for move, _ in by_target.pop(target):
                    outcomes[move.id] = "refused"
            if not by_target:
                continue
            stored = yield [self._receive(queue, target, some, now) for target, some in by_target.items()]
            ended: list[Argument] = []
            for (target, some), arrived in zip(by_target.items(), stored, strict=True):
                if arrived < len(some):
                    full.add(target)
                for at, (move, _) in enumerate(some):
                    outcomes[move.id] = "done" if at < arrived else "refused"
                    ended += (to_bytes(move.id), move.number) if at < arrived else ()
            yield [self._call("moved", queue, now, ended, int)]

    def _receive(self, queue: str, target: str, moves: Iterable[tuple[Move, dict[bytes, bytes]]], now: int | None) -> Call[int]:
        args: list[Argument] = []
        order = ASCENDING
        for move, found in moves:
            order, fields = move.order, move.arriving(found, queue)
            due = fields.get(b"due_at", b"") if move.place == "scheduled" else b""
            args += (move.number, to_bytes(move.id), priority_of(move.score, move.order), due, 2 * len(fields))
            args += chain.from_iterable(fields.items())
        memory = queue_keys(self.prefix, target).publisher(f"moves from {escape(queue)}")
        sent = (order, MOVES_REMEMBERED_MS, *args)
        return self._call("receive", target, now, sent, int, (memory,))

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
        if action is Action.MOVE:
            if not isinstance(value, str) or not value:
                raise UsageError("move needs the name of the queue to move to")
            return (to_bytes(value),)
        if value is not None:
            raise UsageError(f"{action} takes no value")
        return ()

    def _call(
        self,
        name: str,
        queue: str,
        now: int | None,
        args: Sequence[Argument],
        parse: Any,
        more_keys: tuple[bytes, ...] = (),
    ) -> Call[Any]:
        all_keys = queue_keys(self.prefix, queue).fixed + more_keys
        return Call(script(name), all_keys, (optional(now), *args), lambda reply: parse(result(reply, f"queue {queue!r}")))


@frozen
class Move:
    """A job on the way to another queue. ``number`` grows from move to move. ``place``: the role of that where it was."""

    id: str
    number: int
    target: str
    place: str
    score: int
    order: PriorityOrder

    def arriving(self, fields: Mapping[bytes, bytes], queue: str) -> dict[bytes, bytes]:
        """What its hash is to be there. A dead one begins anew, as one that is requeued."""
        left_behind = _OF_THE_WAY | (_OF_A_LIFE if self.place == "dead" else frozenset())
        arriving = {name: value for name, value in fields.items() if name not in left_behind}
        if b"message" in arriving:
            arriving[b"message"] = readdressed(arriving[b"message"], queue, self.target)
        return arriving


_OF_THE_WAY = frozenset({b"moved_to", b"moved_from", b"reason", b"error", b"score", b"consumer", b"last_consumer"})
_OF_A_LIFE = frozenset({b"deliveries", b"delivered_at", b"expires_at", b"due_at"})


def readdressed(message: bytes, queue: str, target: str) -> bytes:
    """A message that was published to a queue by its name, as published to another one: a Celery task that is retried goes there.

    One that came by an exchange is as it was.
    """
    try:
        head, body = codec.decode(message)
    except MalformedValue:
        return message
    match head.get("properties"):
        case {"delivery_info": {"exchange": "", "routing_key": str(key)} as info} if key == queue:
            info["routing_key"] = target
            return codec.encode(head, body)
    return message


def _moves(reply: Any) -> list[Move]:
    descending, *found = reply
    order = DESCENDING if descending else ASCENDING
    return [
        Move(to_text(job_id), int(float(number)), to_text(target), place.decode(), int(score), order)
        for job_id, number, target, place, score in found
    ]


def _fields(reply: Any) -> dict[bytes, bytes]:
    # redis-py makes a dict of it, a bare connection does not.
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


def _step(reply: Any) -> BulkStep:
    looked_at, done, left, cursor, unread, removed, moving = reply
    pairs = zip(map(to_text, removed[::2]), removed[1::2], strict=True)
    return BulkStep(looked_at, done, left, to_text(cursor) or None, tuple(map(to_text, unread)), tuple(pairs), moving)


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
