"""Repairs of qless keyspaces: for each rule that commands can mend safely, the commands for one finding.

The hash is right and the places are wrong wherever they contradict each other, so most repairs put a job where its hash says it
belongs. What only people can mend is left out: data that is not JSON, jobs that wait for one that is gone. Jobs whose lock is
over are timed out only if the user has chosen them; the next pop does it by itself. Reading commands among the others name what
must stand still beside what is written. Pure: whoever sends the commands makes sure that nothing has changed meanwhile. Called
by ``family.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from ...schema.choices import NO_CHOICES, Choices
from ...schema.errors import Unrepairable
from ...schema.fact import Fact, Subject
from ...schema.family import Command, Keyspace
from ...schema.job import State
from ...schema.rule import Finding
from ...schema.text import to_bytes, to_text
from .. import lua_json
from ..numbers import parse_int, parse_number
from ..repairs import RepairContext
from .keys import Generation, Scope, era_of, layout
from .record import RUNNING, score_text, work_score
from .rules.placement import DEFAULT_HEARTBEAT_S, WAITING, in_queues
from .scope_repairs import OF_KEYSPACE, OF_SCOPES
from .view import GONE, View, view_of


def repair(finding: Finding, subject: Subject | None, keyspace: Keyspace, choices: Choices = NO_CHOICES) -> list[Command]:
    """The commands that mend the finding; none where that is not safe. Raises Unrepairable with the reason."""
    if finding.repair is None:
        return []
    if subject is None:
        of_keyspace = OF_KEYSPACE.get(finding.rule)
        return list(of_keyspace(finding, keyspace)) if of_keyspace else []
    if subject.scope != Scope.JOB:
        of_name = OF_SCOPES.get(finding.rule)
        return list(of_name(finding, subject, keyspace)) if of_name else []
    of_job = _OF_JOBS.get(finding.rule)
    return list(of_job(QlessRepairContext(finding, view_of(subject), keyspace, choices))) if of_job else []


# Pieces


class QlessRepairContext(RepairContext[View]):
    """A finding about a job of qless."""

    def __init__(self, finding: Finding, view: View, keyspace: Keyspace, choices: Choices = NO_CHOICES) -> None:
        super().__init__(finding, view, keyspace, choices)
        self.now_s = keyspace.now_ms / 1000
        self.record = self.key("record")

    def key(self, role: str, **names: str) -> bytes:
        """A key of the job, in the queue that its hash names."""
        queue = to_text(self.view.fields.get(b"queue", b""))
        return layout(self.keyspace.prefix).key(role, **{"id": self.view.job_id, "queue": queue, **names})

    def set(self, name: str, value: bytes | int) -> Command:
        return ("HSET", self.record, name, value)

    def into_queue(self) -> Iterator[Command]:
        """Puts the job into its queue, where it would stand had it never left."""
        priority = parse_number(self.view.fields.get(b"priority"))
        if priority is not None:
            yield ("ZADD", self.key("work"), score_text(self.work_score(priority)), self.id)

    def released(self) -> Iterator[Command]:
        """Lets a job run that depended on others."""
        due = parse_number(self.view.fields.get(b"scheduled"))
        if due is not None and due > self.now_s:
            yield self.set("state", b"scheduled")
            yield from (("ZADD", self.key("scheduled"), score_text(due), self.id), ("HDEL", self.record, "scheduled"))
        elif commands := list(self.into_queue()):
            yield self.set("state", b"waiting")
            yield from commands
        else:
            return
        yield ("ZREM", self.key("depends"), self.id)

    def work_score(self, priority: int | float) -> float:
        """Of priority and time, in the order of the software in use."""
        since = parse_number(self.view.fields.get(b"time"))
        if since is None:
            puts = [event["when"] for event in self.view.stored.events if event["what"] == "put"]
            since = puts[-1] if puts else self.now_s
        era = era_of(self.keyspace)
        if era.generation < Generation.JID:
            return float(priority)
        return work_score(priority, -since if era.lower_first else since)

    def held(self, until: float) -> Iterator[Command]:
        """What a heartbeat writes."""
        worker = to_text(self.view.fields.get(b"worker", b""))
        yield ("ZADD", self.key("held", worker=worker), score_text(until), self.id)
        yield ("ZADD", self.key("workers"), "NX", score_text(self.now_s), to_bytes(worker))


def _out_of(facts: Iterable[Fact], keyspace: Keyspace) -> Iterator[Command]:
    """Takes a job out of places; a group that is empty then is taken off the register."""
    for key, role, group, member in dict.fromkeys((fact.key, fact.role, fact.label, fact.member) for fact in facts):
        if role == "failed":
            yield ("LREM", key, 0, member or b"")
            if keyspace.totals.sums["listed", group or ""] <= 1:
                yield ("SREM", layout(keyspace.prefix).key("groups"), to_bytes(group or ""))
        else:
            yield ("ZREM", key, member or b"")


# One function a rule: about jobs


def _phantom(context: QlessRepairContext) -> Iterator[Command]:
    yield ("EXISTS", context.record)
    yield from _out_of(in_queues(context.view), context.keyspace)


def _stub(context: QlessRepairContext) -> Iterator[Command]:
    view = context.view
    if not view.is_job and not {b"data", b"klass"} & view.fields.keys():
        yield ("DEL", context.record, context.key("history"))
        yield from _out_of(view.places, context.keyspace)
    elif not view.is_job and all(name in view.fields for name in (b"data", b"klass", b"queue")):
        yield context.set("jid", context.id)
    elif not view.is_job:
        raise Unrepairable("it has lost more than its jid: only people can tell whether it is a job")
    elif view.state is State.UNKNOWN:
        words = {_WORDS_AT.get(fact.role, "") for fact in view.places}
        if view.word or len(words) != 1 or "" in words:
            raise Unrepairable("its places do not tell its state")
        yield context.set("state", words.pop().encode())


_WORDS_AT = {"work": "waiting", "scheduled": "scheduled", "locks": "running", "depends": "depends", "completed": "complete"}
"""The state of a job that has none in its hash, by the role of the one place where it stands."""


def _timed_out(context: QlessRepairContext) -> Iterator[Command]:
    """What qless's own ``timeout`` writes, and out of the worker's set as at any other end; it goes to the next worker."""
    view, lock = context.view, context.view.by_role.get("locks")
    if lock is None or lock.score is None:
        raise Unrepairable("its lock stands in another queue: --repair QLESS-10 first")
    if view.stored.history is None:
        raise Unrepairable("it is of the first year of qless: run any worker on the queue")
    worker = view.fields.get(b"worker")
    context.choices.check(context.keyspace.now_ms, lock.score * 1000, to_text(worker) if worker else None)
    yield ("RPUSH", context.key("history"), lua_json.dump([math.floor(context.now_s), "timed-out"]))
    yield ("ZREM", lock.key, context.id)
    yield from (("ZREM", fact.key, context.id) for fact in (*view.held.values(), *view.slots.values()))
    yield ("ZADD", context.key("work"), "+inf", context.id)
    yield ("HSET", context.record, "state", b"stalled", "expires", 0)
    if b"grace" in view.fields:
        yield ("HDEL", context.record, "grace")


def _waits_nowhere(context: QlessRepairContext) -> Iterator[Command]:
    yield from context.into_queue()


def _lock_lost(context: QlessRepairContext) -> Iterator[Command]:
    until = context.now_s + DEFAULT_HEARTBEAT_S
    yield ("ZADD", context.key("locks"), score_text(until), context.id)
    yield context.set("expires", score_text(until))
    yield from context.held(until)


def _depends(context: QlessRepairContext) -> Iterator[Command]:
    if context.view.dependencies:
        since = parse_number(context.view.fields.get(b"time")) or context.now_s
        yield ("ZADD", context.key("depends"), score_text(since), context.id)
    else:
        yield from context.released()


def _listed_as_failed(context: QlessRepairContext) -> Iterator[Command]:
    view, group = context.view, context.view.stored.group
    yield from _out_of(in_queues(view), context.keyspace)
    if group is not None and sum(fact.label == group for fact in view.where("failed")) != 1:
        key = context.key("failed", group=group)
        yield ("LREM", key, 0, context.id)
        yield ("LPUSH", key, context.id)
        yield ("SADD", context.key("groups"), to_bytes(group))


def _completed(context: QlessRepairContext) -> Iterator[Command]:
    yield from _out_of(in_queues(context.view), context.keyspace)
    if not context.view.where("completed"):
        since = parse_number(context.view.fields.get(b"time"))
        yield ("ZADD", context.key("completed"), score_text(context.now_s if since is None else since), context.id)


_MEANT = {"scheduled": "scheduled", "depends": "depends", "complete": "completed", **dict.fromkeys(RUNNING, "locks")}


def _one_place(context: QlessRepairContext) -> Iterator[Command]:
    view = context.view
    roles = ("throttled", "work") if view.word == "throttled" else ("work",)
    meant = _MEANT.get(view.word)
    right = next((view.by_role[role] for role in ((meant,) if meant else roles) if role in view.by_role), None)
    if view.word == "failed":
        right = next((fact for fact in view.where("failed") if fact.label == view.stored.group), None)
    elif view.word == "complete":
        right = next(iter(view.where("completed")), None)
    if right is not None and (meant or view.word in WAITING or view.word == "failed"):
        yield from _out_of((fact for fact in view.places if fact.key != right.key), context.keyspace)


def _own_queue(context: QlessRepairContext) -> Iterator[Command]:
    view = context.view
    for fact in in_queues(view):
        if fact.key == context.finding_key:
            yield ("ZREM", fact.key, context.id)
            if b"queue" in view.fields and not view.by_role and view.word not in ("complete", "failed"):
                yield ("ZADD", context.key(fact.role), score_text(fact.score or 0.0), context.id)
                yield ("ZADD", context.key("queues"), "NX", score_text(context.now_s), view.fields[b"queue"])


def _expires(context: QlessRepairContext) -> Iterator[Command]:
    lock = context.view.by_role.get("locks")
    if lock is not None and lock.score is not None and context.view.word in RUNNING:
        yield ("ZSCORE", lock.key, context.id)
        yield context.set("expires", score_text(lock.score))


def _held_by_worker(context: QlessRepairContext) -> Iterator[Command]:
    lock = context.view.by_role.get("locks")
    if lock is not None and lock.score is not None:
        yield from context.held(lock.score)


def _off_key(context: QlessRepairContext) -> Iterator[Command]:
    yield ("ZREM", context.finding_key, context.id)


def _history_alone(context: QlessRepairContext) -> Iterator[Command]:
    if context.view.record is None:
        yield ("EXISTS", context.record)
        yield ("DEL", context.finding_key)


def _off_failed(context: QlessRepairContext) -> Iterator[Command]:
    facts = [fact for fact in context.view.where("failed") if fact.key == context.finding_key]
    if len(facts) > 1 and context.view.word == "failed" and facts[0].label == context.view.stored.group:
        yield from (("LREM", context.finding_key, 0, context.id), ("LPUSH", context.finding_key, context.id))
    else:
        yield from _out_of(facts, context.keyspace)


def _tags_agree(context: QlessRepairContext) -> Iterator[Command]:
    view = context.view
    tags = () if view.record is None else view.stored.tags
    if tags is None:
        return
    for tag, fact in view.tagged.items():
        if fact.key == context.finding_key and tag not in tags:
            yield ("ZREM", fact.key, context.id)
            yield ("ZINCRBY", context.key("tags"), -1, to_bytes(tag))
    if context.finding_key == context.record:
        since = parse_number(view.fields.get(b"time")) or context.now_s
        for tag in dict.fromkeys(tags):
            if tag not in view.tagged:
                yield ("ZADD", context.key("tagged", tag=tag), score_text(since), context.id)
                yield ("ZINCRBY", context.key("tags"), 1, to_bytes(tag))


def _dependencies(context: QlessRepairContext) -> Iterator[Command]:
    """A job that waits for one that is gone is a decision of people: nobody knows whether that had run."""
    view = context.view
    done = [other for other, reply in view.replies.items() if reply.values[0] == b"complete" and other in view.dependencies]
    for other, reply in view.replies.items():
        if other in view.dependencies and reply.values[0] not in (GONE, b"complete") and reply.values[1] != b"1":
            yield ("SADD", context.key("dependents", id=other), context.id)
    for other, fact in view.releasing_it.items():
        if other not in view.dependencies or other in done:
            yield ("SREM", fact.key, context.id)
    released = list(context.released()) if len(done) == len(view.dependencies) and view.word == "depends" else []
    if done and (released or len(done) < len(view.dependencies)):
        yield ("SREM", context.key("dependencies"), *map(to_bytes, done))
        yield from released


def _dependencies_alone(context: QlessRepairContext) -> Iterator[Command]:
    view = context.view
    yield ("DEL", context.finding_key)
    if context.finding_key == context.key("dependencies"):
        yield from (("SREM", fact.key, context.id) for fact in view.releasing_it.values())


def _numbers(context: QlessRepairContext) -> Iterator[Command]:
    fields = context.view.fields
    for name in (b"retries", b"remaining"):
        value = parse_number(fields.get(name))
        if name in fields and parse_int(fields[name]) is None and value is not None and abs(value) < 2**53:
            yield context.set(name.decode(), math.floor(value))
    if b"priority" in fields and parse_number(fields[b"priority"]) is None:
        yield context.set("priority", 0)


def _fields(context: QlessRepairContext) -> Iterator[Command]:
    view = context.view
    if view.stored.tags is None:
        yield context.set("tags", lua_json.dump(sorted(view.tagged)))
    if view.stored.failure is None and view.word != "failed":
        yield ("HDEL", context.record, "failure")


def _leftovers(context: QlessRepairContext) -> Iterator[Command]:
    if b"grace" in context.view.fields and context.view.word not in RUNNING:
        yield ("HDEL", context.record, "grace")
    if b"scheduled" in context.view.fields and context.view.word != "depends":
        yield ("HDEL", context.record, "scheduled")


def _slots(context: QlessRepairContext) -> Iterator[Command]:
    view = context.view
    if b"throttles" in view.fields:
        for throttle in dict.fromkeys(view.stored.throttles or ()):
            if throttle not in view.slots:
                yield ("ZADD", context.key("slots", throttle=throttle), 1, context.id)
        yield ("HGET", context.record, "throttles")


def _throttled(context: QlessRepairContext) -> Iterator[Command]:
    view = context.view
    pending = [("ZREM", fact.key, context.id) for fact in view.pending.values()]
    if view.record is None:
        yield ("EXISTS", context.record)
        yield from pending
    elif view.word in WAITING:
        places = view.where("throttled")
        again = list(context.into_queue()) if places and "work" not in view.by_role else []
        if again or not places:
            yield from (*pending, *_out_of(places, context.keyspace), *again)


def _score_anew(context: QlessRepairContext) -> Iterator[Command]:
    priority = parse_number(context.view.fields.get(b"priority"))
    if priority is not None and context.finding_key != context.record:
        yield ("ZADD", context.finding_key, score_text(context.work_score(priority)), context.id)


_OF_JOBS: Mapping[str, Callable[[QlessRepairContext], Iterator[Command]]] = {
    "QLESS-1": _phantom,
    "QLESS-2": _stub,
    "QLESS-3": _waits_nowhere,
    "QLESS-5": _lock_lost,
    "QLESS-6": _depends,
    "QLESS-7": _listed_as_failed,
    "QLESS-8": _completed,
    "QLESS-9": _one_place,
    "QLESS-10": _own_queue,
    "QLESS-11": _expires,
    "QLESS-12": _timed_out,
    "QLESS-13": _held_by_worker,
    "QLESS-14": _off_key,
    "QLESS-15": _history_alone,
    "QLESS-17": _off_failed,
    "QLESS-18": _off_key,
    "QLESS-19": _tags_agree,
    "QLESS-21": _dependencies,
    "QLESS-22": _dependencies_alone,
    "QLESS-24": _numbers,
    "QLESS-25": _fields,
    "QLESS-28": _off_key,
    "QLESS-31": _leftovers,
    "QLESS-32": _off_key,
    "QLESS-33": _slots,
    "QLESS-34": _throttled,
    "QLESS-37": _score_anew,
}

CHOOSABLE = frozenset({"QLESS-12"})
"""The rules whose repair asks what the user chooses."""

REPAIRABLE = frozenset({*_OF_JOBS, *OF_SCOPES, *OF_KEYSPACE})
"""The rules that have a repair. For single cases ``repair`` may still give no commands."""
