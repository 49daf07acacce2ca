"""Repairs of kickq keyspaces: for each rule that commands can mend safely, the commands for one finding.

The hash says in which state a job is, and most repairs put it where jobs of that state belong. What only a decision of people
can mend is left out: documents that are cut, unknown states, jobs whose last run is half written. A job whose worker may live
waits again only if the user has chosen it. No job is pushed whose document no worker can read. Reading commands among the
others name what must stand still beside what is written. Pure: whoever sends the commands makes sure that nothing has changed
meanwhile. Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ...schema.choices import NO_CHOICES, Choices
from ...schema.errors import Unrepairable
from ...schema.fact import Fact, Subject
from ...schema.family import Command, Keyspace
from ...schema.job import State
from ...schema.rule import Finding
from ...schema.text import show, to_bytes
from ..members import Member, join
from ..numbers import number_text, score_to_int
from .keys import FINISHED, SCHEDULED_WORDS, WORDS, layout
from .record import ITEM, PURGE_MS, as_integer, as_number, said_due
from .rules.record import mirrors
from .view import View, view_of

PROMOTED = "queued"


def repair(finding: Finding, subject: Subject | None, keyspace: Keyspace, choices: Choices = NO_CHOICES) -> list[Command]:
    """The commands that mend the finding; none where that is not safe. Raises Unrepairable with the reason."""
    if finding.repair is None:
        return []
    if subject is None:
        of_keyspace = _OF_KEYSPACE.get(finding.rule)
        return list(of_keyspace(finding, keyspace)) if of_keyspace else []
    chosen = _BY_CHOICE.get(finding.rule)
    if chosen is not None:
        return list(chosen(view_of(subject), keyspace, choices))
    of_job = _OF_JOBS.get(finding.rule)
    return list(of_job(view_of(subject), keyspace)) if of_job else []


# Pieces


def _key(view: View, keyspace: Keyspace, role: str) -> bytes:
    """A key of the job."""
    return layout(keyspace.prefix).key(role, id=view.job_id, queue=view.queue, state=view.word)


def _rewritten(view: View, keyspace: Keyspace, name: str, value: Any) -> Iterator[Command]:
    """Changes one member of the document, unless it has the value."""
    if name not in view.stored.item or view.stored.item[name].value != value:
        text = join({**view.stored.item, name: Member.of(value)})
        yield ("HSET", _key(view, keyspace, "record"), ITEM, text)


def _at(view: View, keyspace: Keyspace, role: str, time: float) -> Iterator[Command]:
    """Puts the job into a schedule, and the same time into its document."""
    yield ("ZADD", _key(view, keyspace, role), number_text(time), view.member)
    yield from _rewritten(view, keyspace, "scheduledFor", time)


def _out_of_sets(view: View, facts: Iterable[Fact]) -> Iterator[Command]:
    return (("SREM", fact.key, view.member) for fact in facts)


def _out_of_lists(view: View, facts: Iterable[Fact]) -> Iterator[Command]:
    """Takes the job out of lists, as often as it stands there."""
    return (("LREM", key, 0, view.member) for key in dict.fromkeys(fact.key for fact in facts))


def _out_of_schedule(view: View, *roles: str) -> Iterator[Command]:
    return (("ZREM", view.times[role].key, view.member) for role in roles if role in view.times)


def _unrecorded(view: View, keyspace: Keyspace, removals: Iterable[Command]) -> Iterator[Command]:
    """Removes what an id without a record has left, provided that it still has none."""
    yield ("EXISTS", _key(view, keyspace, "record"))
    yield from removals


def _queued(view: View, keyspace: Keyspace, word: str = PROMOTED) -> Iterator[Command]:
    """Lets the job wait in its queue, as a scheduler of kickq does when its time has come."""
    own = layout(keyspace.prefix).key("state", state=word)
    yield ("HSET", _key(view, keyspace, "record"), "state", word)
    yield from _out_of_sets(view, (fact for fact in view.sets if fact.key != own))
    yield ("SADD", own, view.member)
    yield from _pushed(view, keyspace)


def _pushed(view: View, keyspace: Keyspace) -> Iterator[Command]:
    if not view.queue_lists:
        yield ("RPUSH", _key(view, keyspace, "queue"), view.member)


# One function a rule: about jobs


def _one_set(view: View, keyspace: Keyspace) -> Iterator[Command]:
    own = _key(view, keyspace, "state")
    yield from _out_of_sets(view, (fact for fact in view.sets if fact.key != own))
    yield ("SADD", own, view.member)


def _into_time_index(view: View, keyspace: Keyspace) -> Iterator[Command]:
    created_at = as_number(view.stored.value("createTime")) or view.stored.time("createTime")
    if created_at is not None:
        yield ("ZADD", _key(view, keyspace, "time_index"), number_text(created_at), view.member)


def _into_queue(view: View, keyspace: Keyspace) -> Iterator[Command]:
    if view.readable:
        yield from _pushed(view, keyspace)


def _out_of_queues(view: View, _keyspace: Keyspace) -> Iterator[Command]:
    # A job in processing was perhaps pushed by hand, because its worker is dead; one that is not scheduled has no other place.
    if view.state in FINISHED or (view.state is State.SCHEDULED and "scheduled" in view.times):
        yield from _out_of_lists(view, view.lists)


def _into_schedule(view: View, keyspace: Keyspace) -> Iterator[Command]:
    if view.readable:
        due_at = said_due(view.stored)
        if due_at is None:  # then nobody knows when: people decide
            return
        if due_at >= keyspace.now_ms:
            yield from _at(view, keyspace, "scheduled", due_at)
        else:
            yield from _queued(view, keyspace)


def _missed(view: View, keyspace: Keyspace) -> Iterator[Command]:
    if view.fact is not None and view.state is State.SCHEDULED and view.readable:
        yield from _out_of_schedule(view, "scheduled")
        yield from _queued(view, keyspace)


def _to_be_purged(view: View, keyspace: Keyspace) -> Iterator[Command]:
    if view.readable:
        said = as_number(view.stored.value("scheduledFor"))
        yield from _at(view, keyspace, "purge", said if said is not None and said >= keyspace.now_ms else _next_purge(keyspace))


def _purge_anew(view: View, keyspace: Keyspace) -> Iterator[Command]:
    if view.fact is not None and view.state in FINISHED and view.readable:
        yield from _at(view, keyspace, "purge", _next_purge(keyspace))


def _next_purge(keyspace: Keyspace) -> int:
    return keyspace.now_ms + PURGE_MS


def _listed_runs(view: View, keyspace: Keyspace) -> Iterator[Command]:
    if view.stored.value("runs") is None:  # else it may mean something to somebody
        yield from _rewritten(view, keyspace, "runs", [])


def _once(view: View, _keyspace: Keyspace) -> Iterator[Command]:
    key_to_keep = (view.queue_lists or view.lists)[0].key
    yield from _out_of_lists(view, (fact for fact in view.lists if fact.key != key_to_keep))
    more = sum(fact.key == key_to_keep for fact in view.lists) - 1
    if more:
        yield ("LREM", key_to_keep, -more, view.member)  # from the end: what runs first stays


def _into_own_queue(view: View, keyspace: Keyspace) -> Iterator[Command]:
    if view.state is State.WAITING and view.readable:
        yield from _out_of_lists(view, (fact for fact in view.lists if fact.queue != view.queue))
        yield from _pushed(view, keyspace)


def _mirrored(view: View, keyspace: Keyspace) -> Iterator[Command]:
    wrong = {name: text for name, text in mirrors(view).items() if view.stored.fields.get(name) != text}
    yield ("HSET", _key(view, keyspace, "record"), *(word for pair in wrong.items() for word in pair))


def _time_of_schedule(view: View, keyspace: Keyspace) -> Iterator[Command]:
    score = view.times["purge" if view.state in FINISHED else "scheduled"].score
    whole = score_to_int(score)
    if score is not None and whole is not None:
        yield from _rewritten(view, keyspace, "scheduledFor", whole if whole == score else score)


def _stateless(view: View, keyspace: Keyspace, choices: Choices) -> Iterator[Command]:
    """Gives a job the state of the one set in which it is; one that is in none waits if the user says so."""
    words = {fact.label or "" for fact in view.sets}
    if b"state" in view.stored.fields:
        raise Unrepairable("the state is an application's own: let the application move it on")
    if not view.readable:
        raise Unrepairable("its document can't be read")
    if len(words) == 1 and words <= WORDS.keys():
        yield ("HSET", _key(view, keyspace, "record"), "state", *words)
    elif words:
        raise Unrepairable(f"it is in sets of several states: {', '.join(sorted(map(show, words)))}")
    elif not choices.requeue:
        raise Unrepairable("it is in no set of a state; with --requeue it waits")
    else:
        yield from _queued(view, keyspace, _before(view))


def _requeued(view: View, keyspace: Keyspace, choices: Choices) -> Iterator[Command]:
    """Takes a job from a worker that is gone: kickq has no such step, but its workers run whatever is in a queue."""
    known = (as_integer(view.stored.value(name)) for name in ("updateTime", "scheduledFor"))
    choices.check(keyspace.now_ms, max((time for time in known if time is not None), default=None), None)
    yield from _queued(view, keyspace, _before(view))


def _before(view: View) -> str:
    """The word of a job that waits, as its document goes with it."""
    return PROMOTED if view.stored.value("state") in SCHEDULED_WORDS else "new"


_BY_CHOICE: Mapping[str, Callable[[View, Keyspace, Choices], Iterator[Command]]] = {
    "KICKQ-3": _stateless,
    "KICKQ-18": _requeued,
}

_OF_JOBS: Mapping[str, Callable[[View, Keyspace], Iterator[Command]]] = {
    "KICKQ-1": lambda view, keyspace: iter([("PERSIST", _key(view, keyspace, "record"))]),
    "KICKQ-4": _one_set,
    "KICKQ-5": lambda view, keyspace: _unrecorded(view, keyspace, _out_of_sets(view, view.sets)),
    "KICKQ-6": _into_time_index,
    "KICKQ-7": lambda view, keyspace: _unrecorded(view, keyspace, _out_of_schedule(view, "time_index")),
    "KICKQ-8": _into_queue,
    "KICKQ-9": lambda view, keyspace: _unrecorded(view, keyspace, _out_of_lists(view, view.lists)),
    "KICKQ-10": _out_of_queues,
    "KICKQ-11": _into_schedule,
    "KICKQ-12": lambda view, _keyspace: _out_of_schedule(view, "scheduled"),
    "KICKQ-13": _missed,
    "KICKQ-14": _to_be_purged,
    "KICKQ-15": lambda view, _keyspace: _out_of_schedule(view, "purge"),
    "KICKQ-16": _purge_anew,
    "KICKQ-17": lambda view, keyspace: _unrecorded(view, keyspace, _out_of_schedule(view, "scheduled", "purge")),
    "KICKQ-22": _listed_runs,
    "KICKQ-23": _once,
    "KICKQ-24": _into_own_queue,
    "KICKQ-25": _mirrored,
    "KICKQ-26": _time_of_schedule,
}


# About the keyspace


def _lasting(finding: Finding, _keyspace: Keyspace) -> Iterator[Command]:
    yield ("PERSIST", to_bytes(finding.key))


def _raised_counter(_finding: Finding, keyspace: Keyspace) -> Iterator[Command]:
    yield ("SET", layout(keyspace.prefix).key("ids"), keyspace.totals.maxima.get(("highest id", ""), 0))


_OF_KEYSPACE: Mapping[str, Callable[[Finding, Keyspace], Iterator[Command]]] = {
    "KICKQ-1": _lasting,
    "KICKQ-21": _raised_counter,
}

CHOOSABLE = frozenset(_BY_CHOICE)
"""The rules whose repair asks what the user chooses."""

REPAIRABLE = frozenset({*_OF_JOBS, *_BY_CHOICE, *_OF_KEYSPACE})
"""The rules that have a repair. For single cases ``repair`` may still give no commands."""
