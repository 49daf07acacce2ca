"""The rules of a healthy native keyspace.

Place is truth, so most rules are about places: every job in exactly one, and nothing that keeps it from being taken. The
scripts keep all of them; what breaks one is a lost write (a failover, an eviction), foreign hands, or a fleet of consumers that
is gone. Live consumers make NATIVE-14 flicker between the popping of a token and the take that follows. Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..errors import MalformedValue
from ..fact import Fact
from ..family import Keyspace
from ..odd_key import NAMELESS
from ..rule import Harm, Rule, Severity, Violation
from ..text import ago, show, span, to_bytes
from . import codec
from .keys import OUTBOX_NUMBERS_PER_MS, QueueKeys
from .numbers import parse_int, parse_number, score_to_int
from .overflow import Overflow
from .reader import View, consumer_label, view_of

LATE_MS = 60_000
"""Due jobs and lapsed leases are seen at the next poll of any consumer, at most a lease later. What is older, nobody sees."""

STALE_MS = 300_000
"""Every client that consumes looks after dead letters on their way, at least twice a minute. What is older, nobody forwards."""

Check = Callable[[View, Keyspace], Iterator[Violation]]


def _violation(view: View, detail: str, key: bytes | None = None) -> Violation:
    return Violation(detail, view.key if key is None else key, view.queue)


# About single jobs


def _member_without_hash(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.record is None:
        for fact in view.places:
            yield _violation(view, f"stands in {fact.role}, but has no hash: its message is gone", fact.key)


def _hash_in_no_key(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.record is not None and not view.places:
        yield _violation(view, "stands in no place, so nobody will ever take it")


def _in_two_keys(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if len(view.places) > 1:
        keys = ", ".join(sorted(show(fact.key) for fact in view.places))
        yield _violation(view, f"stands in {len(view.places)} places and will run more than once: {keys}")


def _holder_unknown(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    for fact in view.places:
        if fact.role == "held" and _lease(view, fact.label, keyspace) is None:
            yield _violation(
                view,
                f"held by {show(fact.label or '')}, which has no lease that ends: no consumer ever reclaims it",
                fact.key,
            )


def _no_message(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.record is None or b"payload" in view.fields:
        return
    message = view.fields.get(b"message")
    if message is None:
        yield _violation(view, "has neither a message nor a payload, so it can't be delivered")
        return
    try:
        codec.decode(message)
    except MalformedValue as error:
        yield _violation(view, f"has a malformed message: {error}")


def _score_inexact(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    for fact in view.places:
        if fact.role in ("waiting", "held") and fact.score is not None and score_to_int(fact.score) is not None:
            inexact = abs(fact.score) > 2**53 or not fact.score.is_integer()
            if inexact:
                yield _violation(view, f"has the score {fact.score!r}, which is no priority and sequence", fact.key)


def _score_unreadable(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    for fact in view.places:
        if fact.role in ("waiting", "held") and score_to_int(fact.score) is None:
            yield _violation(view, f"has the score {fact.score!r}, which is none", fact.key)


def _score_forgotten(*roles: str) -> Check:
    """Whether a job in such a place remembers a score in waiting that can't be read."""

    def check(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
        own, score = view.place, view.fields.get(b"score")
        if own is not None and own.role in roles and score is not None and parse_number(score) is None:
            yield _violation(
                view, f"remembers the score {show(score, 40)!r}; it will go ahead of all others of the middle priority"
            )

    return check


def _deliveries_lost(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    raw, own = view.fields.get(b"deliveries"), view.place
    if own is not None and raw is not None and parse_int(raw) is None:
        yield _violation(view, f"has {show(raw, 40)!r} deliveries: the next one fails")


def _times_lost(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    wrong = [name for name in (b"published_at", b"delivered_at") if name in view.fields and parse_int(view.fields[name]) is None]
    if wrong:
        texts = ", ".join(f"{name.decode()} {show(view.fields[name], 40)!r}" for name in wrong)
        yield _violation(view, f"has times that can't be read: {texts}")


def _due_time_lost(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    own = view.place
    if own is not None and own.role == "scheduled" and score_to_int(own.score) is None:
        yield _violation(view, f"is scheduled for {own.score!r}, which is no time: when it is due is lost", own.key)


def _blocked_by_nothing(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if any(fact.role == "blocked" for fact in view.places) and not view.needs:
        yield _violation(view, "is blocked, but waits for nothing, so it never goes on")


def _overdue(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    for fact in view.places:
        if fact.role == "scheduled" and fact.score is not None and fact.score < keyspace.now_ms - LATE_MS:
            yield _violation(view, f"was due {ago(fact.score, keyspace.now_ms)}: no consumer looks at this queue", fact.key)


def _lapsed(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    for fact in view.places:
        lease = _lease(view, fact.label, keyspace) if fact.role == "held" else None
        if lease is not None and lease < keyspace.now_ms - LATE_MS:
            yield _violation(
                view, f"its consumer's lease ended {ago(lease, keyspace.now_ms)}: no consumer looks at this queue", fact.key
            )


def _overflow_malformed(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    raw = view.fields.get(Overflow.FIELD)
    if raw is not None:
        try:
            Overflow.decode(raw)
        except MalformedValue as error:
            yield _violation(view, f"what its migration kept can't be read: {error}")


def _dead_letter_stale(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    for entry in view.outbox_entries:
        died_at = (entry.score or 0) / OUTBOX_NUMBERS_PER_MS
        if died_at < keyspace.now_ms - STALE_MS:
            late = span(keyspace.now_ms - died_at)
            if forwards(view, keyspace):
                why = "no consumer of any queue looks, or there is no room where it goes"
            else:
                why = "the queue has none any more"
            yield _violation(view, f"has waited {late} to go to the dead letter exchange: {why}", entry.key)


def forwards(view: View, keyspace: Keyspace) -> bool:
    """Whether the job's queue has a dead letter exchange."""
    return view.queue in _known(keyspace, "forwarding")


def _outbox_not_dead(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if not any(fact.role == "dead" for fact in view.places):
        for entry in view.outbox_entries:
            yield _violation(view, "is to go to the dead letter exchange, but is not dead: it would run there as well", entry.key)


def _unique_without_holder(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    for key in view.unique_keys:
        # One with a TTL is held for that time, whatever becomes of the job.
        if key.ttl_ms is None and not holds_unique(view, key):
            has_ended = "has ended" if view.fields.get(b"unique") == to_bytes(key.label or "") else "does not hold it"
            yield _violation(view, f"has the unique key {show(key.label or '', 80)!r}, but {has_ended}", key.key)


def holds_unique(view: View, key: Fact) -> bool:
    """Whether the job holds the dedup key that names it."""
    ended = any(fact.role in ("dead", "done") for fact in view.places)
    return view.fields.get(b"unique") == to_bytes(key.label or "") and not ended


def _lease(view: View, consumer: str | None, keyspace: Keyspace) -> int | None:
    return keyspace.totals.maxima.get(("lease", consumer_label(view.queue, consumer or "")))


# About queues and the keyspace


def _meta(queue: str, keyspace: Keyspace) -> bytes:
    return _keys(queue, keyspace).meta


def _keys(queue: str, keyspace: Keyspace) -> QueueKeys:
    return QueueKeys(keyspace.prefix, queue)


def _known(keyspace: Keyspace, registry: str = "queues") -> set[str]:
    return keyspace.totals.names.get(registry, set())


def _other_schema(keyspace: Keyspace) -> Iterator[Violation]:
    for queue in sorted(_known(keyspace, "other schema")):
        found = keyspace.totals.samples["other schema", queue][0]
        yield Violation(f"has schema {show(found, 40)!r}; this ferryman knows 1", _meta(queue, keyspace), queue)


def _jobs_without_queue(keyspace: Keyspace) -> Iterator[Violation]:
    for queue in keyspace.totals.labels("records"):
        if queue not in _known(keyspace):
            jobs = keyspace.totals.sums["records", queue]
            yield Violation(f"{jobs} jobs of a queue that does not exist: nobody can take them", _meta(queue, keyspace), queue)


def _sequence_behind(keyspace: Keyspace) -> Iterator[Violation]:
    for (measure, queue), highest in sorted(keyspace.totals.maxima.items()):
        if measure == "highest sequence" and queue in _known(keyspace):
            sequence = keyspace.totals.maxima.get(("sequence", queue), 0)
            if sequence < highest:
                detail = f"the next job gets sequence {sequence + 1}, but {highest} is taken: it would run too early"
                yield Violation(detail, _meta(queue, keyspace), queue)


def _tokens(keyspace: Keyspace) -> Iterator[Violation]:
    totals = keyspace.totals
    for queue in totals.labels("waiting"):
        if not totals.sums["tokens", queue] and queue not in _known(keyspace, "paused"):
            waiting = totals.sums["waiting", queue]
            yield Violation(f"{waiting} jobs wait, but no token wakes a consumer", _keys(queue, keyspace).wake, queue)
    for queue in totals.labels("tokens"):
        if totals.sums["tokens", queue] > 1:
            yield Violation(f"{totals.sums['tokens', queue]} tokens instead of one", _keys(queue, keyspace).wake, queue)


def _unexpected_keys(keyspace: Keyspace) -> Iterator[Violation]:
    for role in keyspace.totals.labels("odd key"):
        for key in keyspace.totals.samples["odd key", role]:
            what = "has a name that no key of ours has" if role == NAMELESS else f"is no {role} key: wrong type or wrong name"
            yield Violation(f"stands under our prefix, but {what}", to_bytes(key))


def _expiring(keyspace: Keyspace) -> Iterator[Violation]:
    for queue in keyspace.totals.labels("expiring"):
        if queue not in _known(keyspace, "temporary"):
            for key in keyspace.totals.samples["expiring", queue]:
                yield Violation(
                    "carries a TTL, though its queue lasts: it will vanish, or be evicted first", to_bytes(key), queue
                )


def _unregistered(keyspace: Keyspace) -> Iterator[Violation]:
    for queue in sorted(_known(keyspace) - _known(keyspace, "temporary") - _known(keyspace, "registered")):
        yield Violation("is not listed among the queues", _meta(queue, keyspace), queue)


def _not_looked_at(keyspace: Keyspace) -> Iterator[Violation]:
    for queue in sorted(_known(keyspace, "forwarding") - _known(keyspace, "looked at")):
        detail = "has a dead letter exchange, but is not listed as such: its dead letters wait for a consumer of its own"
        yield Violation(detail, _meta(queue, keyspace), queue)


def _about_job(
    number: int,
    title: str,
    severity: Severity,
    harm: Harm,
    check: Check,
    repair: str | None = None,
    refuses: bool = False,
    assumes: str | None = None,
) -> Rule[Keyspace]:
    refuses = refuses or assumes is not None
    return Rule(f"NATIVE-{number}", title, severity, harm, repair, refuses, assumes=assumes, subject=check, view_of=view_of)


def _about_queues(
    number: int,
    title: str,
    severity: Severity,
    harm: Harm,
    check: Callable[[Keyspace], Iterator[Violation]],
    repair: str | None = None,
) -> Rule[Keyspace]:
    return Rule(f"NATIVE-{number}", title, severity, harm, repair, keyspace=check)


ERROR, WARNING = Severity.ERROR, Severity.WARNING

EXACT_SCORES = "Scores in waiting are exact; a job whose score can't be read is not carried"
REMEMBERED_SCORES = "Remembered scores are whole numbers; a job that would go by another one is not carried"
OVERFLOW = "What a migration kept can be read; otherwise the job is not carried"
DELIVERIES = "Deliveries are counted in whole numbers; otherwise the job is not carried"
TIMES = "When a job was published and delivered can be read; otherwise it is not carried"
DUE = "A scheduled job has a time when it is due; otherwise it is not carried"
FIRST = "to run before all others of the middle priority"

RULES = (
    _about_job(1, "Every id in a place has a hash", ERROR, Harm.LOST, _member_without_hash, "remove the id from the place"),
    _about_job(2, "Every job stands in a place", ERROR, Harm.LOST, _hash_in_no_key, "put the job back in waiting", True),
    _about_job(3, "Every job stands in one place only", ERROR, Harm.DUPLICATE, _in_two_keys, "keep the first place"),
    _about_job(4, "Every holder has a lease that ends", ERROR, Harm.LOST, _holder_unknown, "put the job back in waiting"),
    _about_job(5, "Every job has a valid message or a payload", ERROR, Harm.POISON, _no_message, "move the job to dead", True),
    _about_job(6, EXACT_SCORES, WARNING, Harm.LATE, _score_unreadable, assumes=FIRST),
    _about_job(6, EXACT_SCORES, WARNING, Harm.LATE, _score_inexact),
    _about_job(7, REMEMBERED_SCORES, WARNING, Harm.LATE, _score_forgotten("scheduled", "blocked", "dead"), assumes=FIRST),
    _about_job(8, "A blocked job waits for something", ERROR, Harm.LOST, _blocked_by_nothing, "put the job in waiting"),
    _about_job(9, "Due jobs are promoted", WARNING, Harm.LATE, _overdue, "start a consumer"),
    _about_job(10, "Lapsed leases are reclaimed", WARNING, Harm.LATE, _lapsed, "start a consumer"),
    _about_job(11, OVERFLOW, WARNING, Harm.COSMETIC, _overflow_malformed, assumes="as the rest of its hash says"),
    _about_queues(12, "Queues have a schema that this version knows", ERROR, Harm.LOST, _other_schema, "update ferryman"),
    _about_queues(13, "Jobs belong to a queue that exists", ERROR, Harm.LOST, _jobs_without_queue, "declare the queue"),
    _about_queues(14, "Where jobs wait, one token does", WARNING, Harm.LATE, _tokens, "publish, or start a consumer"),
    _about_queues(15, "Sequences are above every one given", WARNING, Harm.LATE, _sequence_behind, "raise the sequence"),
    _about_queues(16, "Keys under the prefix are ours", WARNING, Harm.COSMETIC, _unexpected_keys, "move the key away"),
    _about_queues(17, "Only keys of temporary queues expire", ERROR, Harm.LOST, _expiring, "PERSIST the key"),
    _about_queues(18, "Lasting queues are listed", WARNING, Harm.COSMETIC, _unregistered, "declare the queue again"),
    _about_job(
        19, "Dead letters are forwarded", WARNING, Harm.LATE, _dead_letter_stale, "start a consumer, or let them stay dead"
    ),
    _about_job(20, "Only dead jobs are in the outbox", ERROR, Harm.DUPLICATE, _outbox_not_dead, "take the job out of the outbox"),
    _about_job(21, "Unique keys name who holds them", WARNING, Harm.LEAK, _unique_without_holder, "delete the key"),
    _about_queues(22, "Queues that forward are listed", WARNING, Harm.LATE, _not_looked_at, "list the queue"),
    _about_job(23, DELIVERIES, ERROR, Harm.POISON, _deliveries_lost, assumes="as if it had never been delivered"),
    _about_job(24, DUE, ERROR, Harm.LOST, _due_time_lost, assumes="due at once"),
    _about_job(25, TIMES, WARNING, Harm.COSMETIC, _times_lost, assumes="without those"),
)
"""All rules. Jobs stay at the source (``refuses``) when nothing could run at the target: no place, or no message; or when a value
of theirs is lost, unless the user accepts what they would get instead."""
