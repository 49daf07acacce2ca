"""Repairs of kue keyspaces: for each rule that commands can mend safely, the commands for one finding.

The hash is right and the indexes are wrong wherever they contradict each other, so most repairs put a job where its hash says
it belongs. What only a decision of people, or a running kue process, can mend is left out: an application's own states,
payloads that are not JSON. Jobs of workers that may be alive wait again only if the user has chosen them. Nothing is deleted
that an index could restore, and no due time is made up. Reading commands among the others name what must stand still beside
what is written. Pure: whoever sends the commands makes sure that nothing has changed meanwhile. Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from ...schema.choices import NO_CHOICES, Choices
from ...schema.errors import Unrepairable
from ...schema.fact import Fact, Subject
from ...schema.family import Command, Keyspace
from ...schema.job import State
from ...schema.rule import Finding
from ...schema.text import is_json, show, to_bytes, to_text
from ..numbers import number_text, parse_int, parse_number
from ..rulebook import keys_of
from .keys import STATES, WORDS, Era, MemberFormat, layout, member_format, padded
from .record import INDEXES, due_at, is_function
from .view import View, view_of

TOKEN = b"1"
SLICE = 1000
"""Most tokens in one command."""


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


def _key(view: View, keyspace: Keyspace, role: str, state: State | None = None) -> bytes:
    """A key of the job; ``state``: of an index that is not its own."""
    word = view.word if state is None else WORDS[state]
    return layout(keyspace.prefix).key(role, id=view.job_id, queue=view.queue, state=word or "")


def _member(view: View, keyspace: Keyspace) -> bytes:
    """How the version in use names the job in an index."""
    return (padded(view.job_id) if Era.of(keyspace.totals) is Era.V0_10_3 else view.job_id).encode()


def _score(view: View, keyspace: Keyspace, role: str, priority: float) -> int | float:
    """The score that the job should have in an index of its own."""
    if role == "by_state" and view.state is State.SCHEDULED and Era.of(keyspace.totals) >= Era.V0_9:
        promote_at = view.int_field(b"promote_at")
        due = due_at(view.fields) if promote_at is None else promote_at
        if due is None:
            raise Unrepairable("when it is due is lost")
        return max(0, due)
    if role == "by_state" and view.state is State.ACTIVE:
        # A lost lease begins anew: kue gives up on the worker after it.
        return keyspace.now_ms + (view.int_field(b"ttl") or 0) if view.has_ttl else -abs(priority)
    return priority


def _into(view: View, keyspace: Keyspace, role: str, priority: float | None = None) -> Iterator[Command]:
    """Puts the job into one of its indexes, with the token that a waiting one needs."""
    if priority is None:
        priority = parse_number(view.fields.get(b"priority"))
    if priority is None or (view.state is State.UNKNOWN and role != "all"):
        return
    key = _key(view, keyspace, role)
    yield ("ZADD", key, number_text(_score(view, keyspace, role, priority)), _member(view, keyspace))
    if role == "by_type" and view.state is State.WAITING and view.by_role.get(role) is None:
        yield from _token(view.queue, keyspace)


def _token(queue: str, keyspace: Keyspace) -> Iterator[Command]:
    """One token more, unless there are too many already."""
    totals = keyspace.totals
    if totals.sums["tokens", queue] <= totals.sums["waiting", queue]:
        yield ("LPUSH", layout(keyspace.prefix).key("tokens", queue=queue), TOKEN)


def _out_of(facts: Iterable[Fact], keyspace: Keyspace) -> Iterator[Command]:
    """Takes members out of indexes, with the tokens of those that seemed to wait."""
    totals = keyspace.totals
    for fact in facts:
        yield ("ZREM", fact.key, fact.member or b"")
        queue = fact.queue or ""
        waits = fact.role == "by_type" and fact.label == WORDS[State.WAITING]
        if waits and totals.sums["tokens", queue] >= totals.sums["waiting", queue]:
            yield ("LREM", layout(keyspace.prefix).key("tokens", queue=queue), 1, TOKEN)


def _search_entries(view: View) -> Iterator[Command]:
    for key in sorted({fact.key for fact in view.search_facts if fact.role == "search_object"}):
        yield ("DEL", key)
    for fact in view.search_facts:
        if fact.role == "search_word":
            yield ("SREM" if fact.redis_type == "set" else "ZREM", fact.key, fact.member or b"")


def _logs(view: View) -> Iterator[Command]:
    for key in sorted({fact.key for fact in view.log_facts}):
        yield ("DEL", key)


def _moved(view: View, keyspace: Keyspace, state: State) -> Iterator[Command]:
    """Puts the job into another state, as kue does it."""
    priority = parse_number(view.fields.get(b"priority"))
    if priority is None:
        return
    yield ("HSET", _key(view, keyspace, "record"), "state", WORDS[state], "updated_at", keyspace.now_ms)
    yield from _out_of((fact for role, fact in view.by_role.items() if role != "all"), keyspace)
    member = _member(view, keyspace)
    for role in ("by_state", "by_type"):
        yield ("ZADD", _key(view, keyspace, role, state), number_text(priority), member)
    if state is State.WAITING:
        yield from _token(view.queue, keyspace)


# One function a rule: about jobs


def _member_without_hash(view: View, keyspace: Keyspace) -> Iterator[Command]:
    yield ("EXISTS", _key(view, keyspace, "record"))
    yield from _out_of(view.places, keyspace)


def _remove(view: View, keyspace: Keyspace) -> Iterator[Command]:
    yield from _out_of(view.places, keyspace)
    yield from _search_entries(view)
    yield from _logs(view)
    yield ("DEL", _key(view, keyspace, "record"))


def is_rest(view: View) -> bool:
    """Whether a hash without a type is no job any more: what a worker wrote after its removal, or the first of a creation."""
    return view.record is None or not {b"data", b"priority", b"created_at"} & view.fields.keys()


def _hash_without_type(view: View, keyspace: Keyspace) -> Iterator[Command]:
    types = sorted({fact.queue or "" for fact in view.places if fact.role == "by_type"})
    if is_rest(view):
        yield from _remove(view, keyspace)
    elif len(types) == 1:
        yield ("HSET", _key(view, keyspace, "record"), "type", to_bytes(types[0]))
    elif types:
        raise Unrepairable(f"indexes name several types ({', '.join(map(show, types))}): only people know which is right")
    else:
        raise Unrepairable("it holds a job, and no index names its type: only people know it")


def _stateless(view: View, keyspace: Keyspace, choices: Choices) -> Iterator[Command]:
    """Gives a job the state that its indexes name; one that stands in none waits if the user says so."""
    if view.word is not None:
        raise Unrepairable("the state is an application's own: let the application move it on")
    facts = [fact for fact in view.places if fact.role != "all"]
    words = {fact.label or "" for fact in facts}
    if len(words) == 1 and to_bytes(*words) in STATES:
        yield ("HSET", _key(view, keyspace, "record"), "state", *words)
    elif facts:
        raise Unrepairable(f"indexes name several states, or one that is not kue's: {keys_of(facts)}")
    elif not choices.requeue:
        raise Unrepairable("no index names its state; with --requeue it waits")
    else:
        yield from _queued(view, keyspace)


def _requeued(view: View, keyspace: Keyspace, choices: Choices) -> Iterator[Command]:
    """Takes a job from a worker that is gone: what kue's own ``inactive()`` writes."""
    if view.fields.get(b"progress") == b"100" and b"duration" in view.fields:
        raise Unrepairable("its work is done and would run twice: --repair KUE-17 completes it")
    times = (view.int_field(name) for name in (b"started_at", b"updated_at"))
    since = max((time for time in times if time is not None), default=None)
    worker = view.fields.get(b"workerId")
    choices.check(keyspace.now_ms, since, None if worker is None else to_text(worker))
    yield from _queued(view, keyspace)


def _queued(view: View, keyspace: Keyspace) -> Iterator[Command]:
    """Lets a job wait."""
    if not is_json(view.fields.get(b"data")):
        raise Unrepairable("its payload can't be read: the worker that takes it would drop it")
    if parse_number(view.fields.get(b"priority")) is None:
        raise Unrepairable("it has no priority to wait by: --repair KUE-11 first")
    yield from _moved(view, keyspace, State.WAITING)


def _priority(view: View, keyspace: Keyspace) -> Iterator[Command]:
    yield ("HSET", _key(view, keyspace, "record"), "priority", 0)
    for role in INDEXES:
        timed = role == "by_state" and view.state in (State.SCHEDULED, State.ACTIVE)
        if not (timed and role in view.by_role):
            yield from _into(view, keyspace, role, priority=0)


def _scores(view: View, _keyspace: Keyspace) -> Iterator[Command]:
    timed = view.state in (State.SCHEDULED, State.ACTIVE)
    priority = parse_number(view.fields.get(b"priority"))
    for role, fact in view.by_role.items():
        if priority is not None and fact.score != float(priority) and not (timed and role == "by_state"):
            yield ("ZADD", fact.key, number_text(priority), fact.member or b"")


def _due_score(view: View, keyspace: Keyspace) -> Iterator[Command]:
    fact, priority = view.by_role.get("by_state"), parse_number(view.fields.get(b"priority"))
    if fact is not None and priority is not None:
        yield ("ZADD", fact.key, number_text(_score(view, keyspace, "by_state", priority)), fact.member or b"")


def _complete(view: View, keyspace: Keyspace) -> Iterator[Command]:
    if not view.fields.get(b"removeOnComplete"):
        moves = list(_moved(view, keyspace, State.COMPLETED))
        if moves:
            made = max(0, view.int_field(b"attempts") or 0)
            yield from (*moves, ("HSET", _key(view, keyspace, "record"), "attempts", made + 1))


def _backoff(view: View, keyspace: Keyspace) -> Iterator[Command]:
    if not is_function(view.fields[b"backoff"]):
        yield ("HDEL", _key(view, keyspace, "record"), "backoff")


def _results(view: View, keyspace: Keyspace) -> Iterator[Command]:
    wrong = [name for name in (b"result", b"progress_data") if name in view.fields and not is_json(view.fields[name])]
    yield ("HDEL", _key(view, keyspace, "record"), *wrong)


def _attempts(view: View, keyspace: Keyspace) -> Iterator[Command]:
    allowed = parse_int(view.fields.get(b"max_attempts"))
    if allowed is None or allowed < 1:
        made = parse_int(view.fields.get(b"attempts")) or 0
        yield ("HSET", _key(view, keyspace, "record"), "max_attempts", max(1, made))


def _completed_fully(view: View, keyspace: Keyspace) -> Iterator[Command]:
    if view.fields.get(b"removeOnComplete"):
        yield from _remove(view, keyspace)
    else:
        yield ("HSET", _key(view, keyspace, "record"), "attempts", 1)


def _log_without_job(view: View, keyspace: Keyspace) -> Iterator[Command]:
    if not is_rest(view):
        raise Unrepairable("it is the log of a job that has only lost its type: --repair KUE-2 first")
    yield ("HEXISTS", _key(view, keyspace, "record"), "type")
    yield from _logs(view)


def _register(view: View, keyspace: Keyspace) -> Iterator[Command]:
    yield ("SADD", layout(keyspace.prefix).key("types"), to_bytes(view.queue))


def _one_format(view: View, keyspace: Keyspace) -> Iterator[Command]:
    member = _member(view, keyspace)
    right = {fact.key for fact in view.places if fact.member == member}
    for fact in view.places:
        found = member_format(to_text(fact.member or b""), view.job_id)
        if found is not MemberFormat.MALFORMED and fact.member == member:
            continue
        if fact.key in right:
            yield from _out_of([fact], keyspace)
        else:
            right.add(fact.key)
            yield ("ZREM", fact.key, fact.member or b"")
            yield ("ZADD", fact.key, repr(fact.score), member)


def _search_without_job(view: View, keyspace: Keyspace) -> Iterator[Command]:
    yield ("EXISTS", _key(view, keyspace, "record"))
    yield from _search_entries(view)


def _persist(view: View, _keyspace: Keyspace) -> Iterator[Command]:
    keys = (fact.key for fact in (view.record, *view.log_facts) if fact is not None and fact.ttl_ms is not None)
    yield from (("PERSIST", key) for key in dict.fromkeys(keys))


_OF_JOBS: Mapping[str, Callable[[View, Keyspace], Iterator[Command]]] = {
    "KUE-1": _member_without_hash,
    "KUE-2": _hash_without_type,
    "KUE-4": lambda view, keyspace: _into(view, keyspace, "all"),
    "KUE-5": lambda view, keyspace: _into(view, keyspace, "by_state"),
    "KUE-6": lambda view, keyspace: _into(view, keyspace, "by_type"),
    "KUE-7": lambda view, keyspace: _out_of(
        (fact for fact in view.places if fact.role != "all" and fact is not view.by_role.get(fact.role)), keyspace
    ),
    "KUE-11": _priority,
    "KUE-12": _scores,
    "KUE-13": _due_score,
    "KUE-17": _complete,
    "KUE-19": _backoff,
    "KUE-20": _results,
    "KUE-21": _attempts,
    "KUE-22": lambda view, keyspace: _moved(view, keyspace, State.WAITING),
    "KUE-23": _completed_fully,
    "KUE-24": _log_without_job,
    "KUE-25": _register,
    "KUE-27": _one_format,
    "KUE-28": _search_without_job,
    "KUE-29": _persist,
}


_BY_CHOICE: Mapping[str, Callable[[View, Keyspace, Choices], Iterator[Command]]] = {
    "KUE-3": _stateless,
    "KUE-15": _requeued,
    "KUE-16": _requeued,
}


# About the keyspace


def _missing_tokens(finding: Finding, keyspace: Keyspace) -> Iterator[Command]:
    queue, names = finding.queue or "", layout(keyspace.prefix)
    key = names.key("tokens", queue=queue)
    missing = keyspace.totals.sums["waiting", queue] - keyspace.totals.sums["tokens", queue]
    yield ("ZCARD", names.key("by_type", queue=queue, state=WORDS[State.WAITING]))
    yield ("LLEN", key)
    for start in range(0, missing, SLICE):
        yield ("LPUSH", key, *[TOKEN] * min(SLICE, missing - start))


def _raised_counter(_finding: Finding, keyspace: Keyspace) -> Iterator[Command]:
    yield ("SET", layout(keyspace.prefix).key("ids"), keyspace.totals.maxima.get(("highest id", ""), 0))


def _lasting(finding: Finding, _keyspace: Keyspace) -> Iterator[Command]:
    yield ("PERSIST", to_bytes(finding.key))


def _unlocked(finding: Finding, keyspace: Keyspace) -> Iterator[Command]:
    if keyspace.totals.maxima["lock ttl", finding.key] < 0:  # a lock with an end, however late, is somebody's
        yield ("GET", to_bytes(finding.key))
        yield ("DEL", to_bytes(finding.key))


_OF_KEYSPACE: Mapping[str, Callable[[Finding, Keyspace], Iterator[Command]]] = {
    "KUE-8": _missing_tokens,
    "KUE-26": _raised_counter,
    "KUE-29": _lasting,
    "KUE-31": _unlocked,
}

CHOOSABLE = frozenset(_BY_CHOICE)
"""The rules whose repair asks what the user chooses."""

REPAIRABLE = frozenset({*_OF_JOBS, *_BY_CHOICE, *_OF_KEYSPACE})
"""The rules that have a repair. For single cases ``repair`` may still give no commands."""
