"""Repairs: the commands that mend one finding, one function a rule, only where that is safe.

A repair touches nothing but what its finding is about, and makes nothing up: what a record does not say is not guessed. What has
no repair here needs a decision that keys can't tell (run again or not, which of two texts is right). Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...schema.choices import NO_CHOICES, Choices
from ...schema.errors import Unrepairable
from ...schema.fact import Subject
from ...schema.family import Command, Keyspace
from ...schema.rule import Finding
from ...schema.text import to_bytes, to_text
from .. import lua_json
from ..repairs import RepairContext
from .keys import LOCK_MS, OPTIONS, OPTIONS_TTL, UNFINISHED, layout
from .rules.duplicates import NO_ORIGINALS
from .rules.links import untagged
from .rules.placement import MEMBERS
from .rules.record import NEEDED, unreadable, wrong_options
from .view import View, view_of
from .writer import LONGEST_TTL

USUAL = {b"worker": b"", b"retries": b"0", b"history": b"{}", b"tags": b"{}"}
"""What bee writes into fields of which it knows nothing yet."""


class BeeRepairContext(RepairContext[View]):
    """A finding about a job of bee."""

    @property
    def record(self) -> bytes:
        return self.key("record", id=self.view.job_id)

    def key(self, role: str, **names: str) -> bytes:
        return layout(self.keyspace.prefix).key(role, **names)

    def put_in(self, role: str, score: float) -> Command:
        """Puts the job into a sorted set of its queue."""
        return ("ZADD", self.key(role, queue=self.view.queue), score, self.id)

    def ttl(self) -> int | None:
        """How long the job is to stay after its end, ms; None where its options don't tell."""
        ttl = lua_json.numeric((self.view.options or {}).get("ttl"))
        return int(ttl) if ttl is not None and 1 <= ttl <= LONGEST_TTL else None


def _add_fields(context: BeeRepairContext) -> Iterator[Command]:
    fields = context.view.fields
    if b"jid" not in fields and context.finding_key == context.record and all(name in fields for name in NEEDED):
        yield ("HSET", context.record, "jid", context.id)  # the key tells it
        return
    missing = [pair for pair in USUAL.items() if pair[0] not in fields]
    is_complete = fields.get(b"jid") == context.id and all(name in fields for name in (*NEEDED, b"submitted"))
    if is_complete and missing:
        yield ("HSET", context.record, *(text for pair in missing for text in pair))


def _drop_result(context: BeeRepairContext) -> Iterator[Command]:
    if unreadable(context.view) == [b"result"]:
        yield ("HDEL", context.record, "result")


def _set_options(context: BeeRepairContext) -> Iterator[Command]:
    options = context.view.options
    if options is not None:
        wrong = wrong_options(options, blocked=bool(context.view.needs))
        right = {name: value for name, value in options.items() if name not in wrong}
        raw = lua_json.dump_plain(right | {name: OPTIONS[name] for name in wrong if name in OPTIONS})
        if raw is not None:
            yield ("HSET", context.record, "options", raw)


def _queue(context: BeeRepairContext) -> Iterator[Command]:
    yield context.put_in("queue", context.now_ms)


def _delay(context: BeeRepairContext) -> Iterator[Command]:
    last = context.view.history[-1] if context.view.history else {}
    till = lua_json.plain_number(last.get("till"))
    can_run = not wrong_options(context.view.options or {}, blocked=False)
    if last.get("event") == "delayed" and till is not None and can_run:
        yield context.put_in("delayed", till)


def _lock(context: BeeRepairContext) -> Iterator[Command]:
    view = context.view
    if view.events[-1:] not in ([], ["popped"]):
        # Its end was cut short: whether it may run again, its worker alone knew.
        return
    if "locks" not in view.by_role:
        yield context.put_in("locks", context.now_ms + LOCK_MS)
    if all(fact.label != view.worker for fact in view.held):
        yield ("SADD", context.key("held", worker=view.worker), context.id)


def _requeue(context: BeeRepairContext) -> Iterator[Command]:
    """What bee's own script writes when a lock has run out for good: one retry is spent, and the job waits."""
    view, retries = context.view, context.view.int_field(b"retries")
    history, allowed = lua_json.as_list(view.fields.get(b"history")), lua_json.plain_number((view.options or {}).get("retries"))
    if view.events[-1:] != ["popped"] or history is None:
        raise Unrepairable("its history does not end with the pop: whether it may run again, its worker alone knew")
    if retries is None or allowed is None or retries >= allowed:
        raise Unrepairable("it has no retries left: any live worker of the queue fails it")
    lock = view.by_role.get("locks")
    since = None if lock is None or lock.score is None else lock.score - LOCK_MS
    context.choices.check(context.now_ms, since, view.worker or None)
    about = {"hive": "ferryman", "timestamp": context.now_ms}
    story = lua_json.dump_plain([*history, {**about, "event": "expiredLock"}, {**about, "event": "queued"}])
    if story is not None:
        yield from (("ZREM", fact.key, context.id) for fact in view.in_set("locks"))
        yield from (("SREM", fact.key, context.id) for fact in view.held)
        yield from (("DEL", fact.key) for fact in view.waits)
        yield ("HSET", context.record, "retries", retries + 1, "status", "queued", "history", story)
        yield context.put_in("queue", context.now_ms)


def _expire(context: BeeRepairContext) -> Iterator[Command]:
    yield context.put_in("expires", context.now_ms + (context.ttl() or OPTIONS_TTL))


def _die(context: BeeRepairContext) -> Iterator[Command]:
    for fact in context.view.places:
        yield ("ZREM", fact.key, context.id)
    if not context.view.is_dying:
        yield ("PEXPIRE", context.record, context.ttl() or OPTIONS_TTL)


def _leave(context: BeeRepairContext) -> Iterator[Command]:
    """Out of the sorted set that the finding names, if it is one in which the job must not be."""
    view = context.view
    if view.record is not None and not view.is_job and b"data" in view.fields:
        raise Unrepairable("it is the place of a job that has only lost its jid: --repair BEE-1 first")
    for fact in view.places:
        belongs = view.status in MEMBERS[fact.role] and fact.queue == view.queue
        if fact.key == context.finding_key and not belongs:
            yield ("ZREM", fact.key, context.id)


def _stay_in_one(context: BeeRepairContext) -> Iterator[Command]:
    view = context.view
    wrong = [fact for fact in view.places if view.status not in MEMBERS[fact.role] or fact.queue != view.queue]
    if len(wrong) == len(view.places) - 1:
        for fact in wrong:
            yield ("ZREM", fact.key, context.id)


def _release_set(context: BeeRepairContext) -> Iterator[Command]:
    """Out of a set that the finding names."""
    yield ("SREM", context.finding_key, context.id)


def _drop_counter(context: BeeRepairContext) -> Iterator[Command]:
    counted = (b"1", b"2", b"3")
    for fact in context.view.waits:
        counts = context.view.status == "running" and fact.label == context.view.worker and fact.values[0] in counted
        if fact.key == context.finding_key and not counts:
            yield ("DEL", fact.key)


def _unlist_alone(context: BeeRepairContext) -> Iterator[Command]:
    for fact in context.view.lists:
        if fact.key == context.finding_key and fact.index == 0 and fact.values == (b"1",):
            yield ("LLEN", fact.key)
            yield ("LREM", fact.key, 0, context.id)


def _list(context: BeeRepairContext) -> Iterator[Command]:
    view = context.view
    if context.finding_key != context.record:
        yield from (
            ("LREM", context.finding_key, 0, context.id)
            for fact in view.lists
            if fact.key == context.finding_key and fact.index != 0
        )
    elif view.unique_list is not None and view.status not in NO_ORIGINALS:
        yield ("RPUSH", context.key("hashes", hashed=view.unique_list), context.id)


def _release(context: BeeRepairContext) -> Iterator[Command]:
    """What bee does when what a job waits for ends: the last one to end lets it run, or start its delay."""
    view = context.view
    ended = {awaited.job_id for awaited in view.awaited if awaited.status not in UNFINISHED}
    if not ended:
        return
    leave: Command = ("SREM", context.key("dependencies", id=view.job_id), *map(to_bytes, sorted(ended)))
    if set(view.needs) - ended or "delayed" in view.by_role:
        yield leave
        return
    options, history = view.options or {}, lua_json.as_list(view.fields.get(b"history"))
    if history is None or wrong_options(options, blocked=True):
        # bee itself would abort here.
        return
    event: dict[str, Any] = {"hive": "ferryman", "timestamp": context.now_ms, "event": "queued"}
    enter, status = context.put_in("queue", context.now_ms), "queued"
    if options["delay"] > 0:
        event |= {"event": "delayed", "till": context.now_ms + options["delay"]}
        enter, status = context.put_in("delayed", event["till"]), "new"
    story = lua_json.dump_plain([*history, event])
    if story is not None:
        yield from (leave, enter, ("HSET", context.record, "status", status, "history", story))


def _drop_dependencies(context: BeeRepairContext) -> Iterator[Command]:
    yield ("DEL", context.key("dependencies", id=context.view.job_id))


def _tag(context: BeeRepairContext) -> Iterator[Command]:
    yield from (("SADD", context.key("tag", tag=tag), context.id) for tag in untagged(context.view))


def _join_parent(context: BeeRepairContext) -> Iterator[Command]:
    view = context.view
    if context.finding_key != context.record:
        yield ("SREM", context.finding_key, context.id)
    elif b"parent" in view.fields:
        yield ("SADD", context.key("children", id=to_text(view.fields[b"parent"])), context.id)


_REPAIRS: Mapping[str, Callable[[BeeRepairContext], Iterator[Command]]] = {
    "BEE-1": _add_fields,
    "BEE-2": _drop_result,
    "BEE-3": _set_options,
    "BEE-5": _queue,
    "BEE-6": _delay,
    "BEE-7": _delay,
    "BEE-8": _lock,
    "BEE-9": _expire,
    "BEE-10": _die,
    "BEE-11": _leave,
    "BEE-12": _leave,
    "BEE-13": _leave,
    "BEE-14": _stay_in_one,
    "BEE-15": _release_set,
    "BEE-16": _requeue,
    "BEE-17": _requeue,
    "BEE-18": _drop_counter,
    "BEE-19": _unlist_alone,
    "BEE-20": _list,
    "BEE-22": _release,
    "BEE-23": _drop_dependencies,
    "BEE-25": _release_set,
    "BEE-26": _tag,
    "BEE-27": _join_parent,
}

REPAIRABLE = frozenset({*_REPAIRS, "BEE-28"})
"""The ids of the rules that ``repair`` can mend, at least in some cases."""


CHOOSABLE = frozenset({"BEE-16", "BEE-17"})
"""The ids of the rules whose repair asks what the user chooses."""


def repair(finding: Finding, subject: Subject | None, keyspace: Keyspace, choices: Choices = NO_CHOICES) -> list[Command]:
    """The commands after which the finding is gone; none where that can't be done safely. Raises Unrepairable with the reason."""
    if finding.rule == "BEE-28":
        # bee itself writes this at every connection of a hive.
        return [("SET", layout(keyspace.prefix).key("hive"), b'{"log":false}')]
    mend = _REPAIRS.get(finding.rule)
    if mend is None or subject is None:
        return []
    context = BeeRepairContext(finding, view_of(subject), keyspace, choices)
    commands = list(mend(context))
    if commands and b"duplicate" in context.view.fields:
        # The record of a duplicate speaks of its original as well, so its state must be asked for.
        commands.insert(0, ("HGETALL", context.record))
    return commands
