"""Repairs of native keyspaces: for each rule that commands can mend safely, the commands for one finding.

They say what the scripts would have left: a job that lost its place waits again, a holder without a lease gets one that is
over, so that the next consumer reclaims what it held, in order. Reading commands among the others name what must stand still
beside what is written. Pure: whoever sends the commands makes sure that nothing has changed meanwhile. Called by ``family.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping

from ..errors import MalformedValue
from ..fact import Fact, Subject
from ..family import Command, Keyspace
from ..rule import Finding
from ..text import to_bytes
from . import codec, keys
from .keys import QueueKeys
from .numbers import parse_number
from .reader import View, view_of
from .rules import forwards, holds_unique
from .scripts.waiting_score import ASCENDING, IMPORTED

TOKEN = "1"
EXACT = 2**53


def repair(finding: Finding, subject: Subject | None, keyspace: Keyspace) -> list[Command]:
    """The commands that mend the finding; none where that is not safe."""
    if subject is None:
        about_queue = _ABOUT_QUEUES.get(finding.rule)
        return list(about_queue(finding, keyspace)) if about_queue and finding.queue else []
    about_job = _ABOUT_JOBS.get(finding.rule)
    return list(about_job(view_of(subject), keyspace)) if about_job and subject.scope else []


def _keys(view: View, keyspace: Keyspace) -> QueueKeys:
    return QueueKeys(keyspace.prefix, view.queue)


def _out_of(facts: Iterable[Fact]) -> Iterator[Command]:
    for fact in facts:
        yield ("SREM" if fact.role == "blocked" else "ZREM", fact.key, fact.member or b"")


def _to_waiting(view: View, keyspace: Keyspace) -> Iterator[Command]:
    """Puts the job where it once waited, or before the others of the middle priority if nothing says where."""
    names = _keys(view, keyspace)
    remembered = parse_number(view.fields.get(b"score"))
    score = 0 if remembered is None or abs(remembered) > EXACT else int(remembered)
    yield ("ZADD", names.waiting, score, to_bytes(view.job_id))
    yield from _token(view.queue, keyspace)


def _token(queue: str, keyspace: Keyspace) -> Iterator[Command]:
    if not keyspace.totals.sums["tokens", queue]:
        wake = QueueKeys(keyspace.prefix, queue).wake
        yield from (("LLEN", wake), ("RPUSH", wake, TOKEN))


def _is_deliverable(view: View) -> bool:
    if b"payload" in view.fields:
        return True
    try:
        codec.decode(view.fields.get(b"message", b""))
    except MalformedValue:
        return False
    return True


# One function a rule: about jobs


def _member_without_hash(view: View, keyspace: Keyspace) -> Iterator[Command]:
    yield ("EXISTS", _keys(view, keyspace).job(view.job_id))
    yield from _out_of(view.places)


def _hash_in_no_key(view: View, keyspace: Keyspace) -> Iterator[Command]:
    if _is_deliverable(view):
        yield from _to_waiting(view, keyspace)


def _in_two_keys(view: View, _keyspace: Keyspace) -> Iterator[Command]:
    yield from _out_of(fact for fact in view.places if fact is not view.place)


def _holder_unknown(view: View, keyspace: Keyspace) -> Iterator[Command]:
    for fact in view.places:
        if fact.role == "held" and fact.label is not None:
            yield ("ZADD", _keys(view, keyspace).consumers, "LT", keyspace.now_ms - 1, to_bytes(fact.label))


def _score_inexact(view: View, _keyspace: Keyspace) -> Iterator[Command]:
    for fact in view.places:
        if fact.role in ("waiting", "held") and fact.score is not None and abs(fact.score) <= EXACT:
            yield ("ZADD", fact.key, math.floor(fact.score), fact.member or b"")


def _score_forgotten(view: View, keyspace: Keyspace) -> Iterator[Command]:
    yield ("HDEL", _keys(view, keyspace).job(view.job_id), "score")


def _blocked_by_nothing(view: View, keyspace: Keyspace) -> Iterator[Command]:
    yield ("EXISTS", _keys(view, keyspace).needs(view.job_id))
    yield from _out_of(fact for fact in view.places if fact.role == "blocked")
    if len(view.places) == 1:
        yield from _to_waiting(view, keyspace)


def _dead_letter_stale(view: View, keyspace: Keyspace) -> Iterator[Command]:
    if not forwards(view, keyspace):
        yield ("HEXISTS", _keys(view, keyspace).meta, "dead_letter_exchange")
        yield from _out_of(view.outbox_entries)


def _outbox_not_dead(view: View, keyspace: Keyspace) -> Iterator[Command]:
    yield ("ZSCORE", _keys(view, keyspace).dead, to_bytes(view.job_id))
    yield from _out_of(view.outbox_entries)


def _unique_without_holder(view: View, keyspace: Keyspace) -> Iterator[Command]:
    yield ("EXISTS", _keys(view, keyspace).job(view.job_id))
    for key in view.unique_keys:
        if key.ttl_ms is None and not holds_unique(view, key):
            yield ("DEL", key.key)


_ABOUT_JOBS: Mapping[str, Callable[[View, Keyspace], Iterator[Command]]] = {
    "NATIVE-1": _member_without_hash,
    "NATIVE-2": _hash_in_no_key,
    "NATIVE-3": _in_two_keys,
    "NATIVE-4": _holder_unknown,
    "NATIVE-6": _score_inexact,
    "NATIVE-7": _score_forgotten,
    "NATIVE-8": _blocked_by_nothing,
    "NATIVE-19": _dead_letter_stale,
    "NATIVE-20": _outbox_not_dead,
    "NATIVE-21": _unique_without_holder,
}


# About queues


def _queue_missing(finding: Finding, keyspace: Keyspace) -> Iterator[Command]:
    queue = finding.queue or ""
    names = QueueKeys(keyspace.prefix, queue)
    sequence = max(IMPORTED, keyspace.totals.maxima.get(("highest sequence", queue), 0))
    yield ("EXISTS", names.meta)
    fields = ("schema", 1, "priority_order", ASCENDING, "routes", keyspace.now_ms, "sequence", sequence)
    yield ("HSET", names.meta, *fields)
    yield ("SADD", keys.queues(keyspace.prefix), to_bytes(queue))


def _tokens(finding: Finding, keyspace: Keyspace) -> Iterator[Command]:
    queue = finding.queue or ""
    if keyspace.totals.sums["tokens", queue] > 1:
        yield ("LTRIM", QueueKeys(keyspace.prefix, queue).wake, 0, 0)
    else:
        yield from _token(queue, keyspace)


def _sequence_behind(finding: Finding, keyspace: Keyspace) -> Iterator[Command]:
    queue = finding.queue or ""
    yield ("HSET", QueueKeys(keyspace.prefix, queue).meta, "sequence", keyspace.totals.maxima["highest sequence", queue])


def _unregistered(finding: Finding, keyspace: Keyspace) -> Iterator[Command]:
    yield ("EXISTS", QueueKeys(keyspace.prefix, finding.queue or "").meta)
    yield ("SADD", keys.queues(keyspace.prefix), to_bytes(finding.queue or ""))


def _not_looked_at(finding: Finding, keyspace: Keyspace) -> Iterator[Command]:
    yield ("HEXISTS", QueueKeys(keyspace.prefix, finding.queue or "").meta, "dead_letter_exchange")
    yield ("SADD", keys.forwarding(keyspace.prefix), to_bytes(finding.queue or ""))


_ABOUT_QUEUES: Mapping[str, Callable[[Finding, Keyspace], Iterator[Command]]] = {
    "NATIVE-13": _queue_missing,
    "NATIVE-14": _tokens,
    "NATIVE-15": _sequence_behind,
    "NATIVE-17": lambda finding, _keyspace: iter([("PERSIST", to_bytes(finding.key))]),
    "NATIVE-18": _unregistered,
    "NATIVE-22": _not_looked_at,
}

REPAIRABLE = frozenset({*_ABOUT_JOBS, *_ABOUT_QUEUES})
"""The rules that have a repair. For single cases ``repair`` may still give no commands."""
