"""Reading kombu: keys to facts, facts to totals, and the facts about one message to a Job.

Pure and total: any bytes in any key, field, member or score give facts, never an error. With the usual empty prefix the whole
database is looked at, so what is not kombu's must be left alone. By name alone kombu's are the hash and the index of unacked
messages, the binding tables, every bucket but the first, and the queue ``celery``; under a prefix every list. Any other list or
hash is kombu's if there is a message in it, but for lists of another prefix, whose messages or binding tables say so. What this
can't tell: a list that is a queue and holds nothing but garbage. Called by ``family.py``.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial

from ...schema.errors import MalformedValue
from ...schema.fact import Entry, Fact, FactKind, Subject
from ...schema.family import Keyspace
from ...schema.job import Job, State
from ...schema.keys import longer_prefixes
from ...schema.memo import remember_last
from ...schema.text import to_bytes, to_text
from ...schema.totals import Totals
from . import bindings
from .bindings import bindings_of, bucket_of
from .keys import (
    DEFAULT_QUEUE,
    LISTS,
    PREFIX_FINDER,
    PROVEN,
    SEP,
    USUAL,
    Settings,
    bucket_label,
    is_control,
    is_reply,
    layout,
    parse_bucket_label,
    settings_of,
    step_of,
    steps_of,
)
from .passthrough import QueuedRecord, job_of
from .record import Message, decode, decode_delivery
from .view import View, step_in, text_of, view_of

HELD_START = b'[{"'
"""How kombu begins a value in the hash of unacked messages; the least that makes a foreign hash worth a look."""

MESSAGE_WORDS = (b'"properties"', b'"body"')
"""Words of a text that was meant to be a message, even if it is cut off or damaged."""


# Keys to facts


def facts(entry: Entry, prefix: str, settings: Settings = USUAL) -> Iterator[Fact]:
    """What one key states; nothing for a key of somebody else's."""
    match = next(layout(prefix, settings).matches(entry.key), None)
    if match is None:
        return
    role, named = match.role, match.fields
    if role in LISTS:
        is_bucket = role == "bucket" and settings.separator == SEP
        if entry.redis_type == "list":
            step = named.get("step", "0")
            yield from _list_facts(entry, named["queue"], step, settings, certain=bool(prefix) or is_bucket)
            return
        if is_bucket or named["queue"] == DEFAULT_QUEUE:
            yield Fact(FactKind.ODD, role, entry.key, entry.redis_type, ttl_ms=entry.ttl_ms)
        elif is_plausible(named["queue"]):
            # Should it be the name of a queue, a binding table will tell.
            yield Fact(FactKind.TOKEN, UNCLAIMED, entry.key, entry.redis_type, queue=named["queue"])
        if entry.redis_type == "hash":
            # The name of the hash is an option; that of a keyspace under another prefix ends like the usual one.
            yield from _held_facts(entry, certain=False, label=_other_prefix(entry.key, prefix, b"unacked"))
        elif entry.redis_type == "zset" and (other := _other_prefix(entry.key, prefix, b"unacked_index")) is not None:
            for tag, score in entry.value:
                yield Fact(
                    FactKind.PLACE,
                    "index",
                    entry.key,
                    "zset",
                    to_text(tag),
                    label=other,
                    member=tag,
                    score=score,
                    ttl_ms=entry.ttl_ms,
                )
        elif entry.redis_type == "set":
            # The binding table of another keyspace: lists under its prefix are not of this one.
            others = longer_prefixes(PREFIX_FINDER.prefixes(entry.key, "set"), prefix)
            if others:
                yield Fact(FactKind.TOKEN, OTHER, entry.key, entry.redis_type, values=tuple(map(to_bytes, others)))
        return
    if entry.redis_type not in match.pattern.redis_types or role.startswith("staged"):
        yield Fact(FactKind.ODD, role, entry.key, entry.redis_type, ttl_ms=entry.ttl_ms)
        return
    about = partial(Fact, role=role, key=entry.key, redis_type=entry.redis_type, ttl_ms=entry.ttl_ms)
    match role:
        case "unacked":
            yield from _held_facts(entry, certain=True)
        case "index":
            for tag, score in entry.value:
                yield about(FactKind.PLACE, job_id=to_text(tag), member=tag, score=score)
        case "mutex":
            yield about(FactKind.TOKEN)
        case "binding" | "permanent":
            yield about(FactKind.REGISTRY, label=named["exchange"], values=tuple(entry.value))
        case "deadlines":
            yield about(FactKind.REGISTRY, values=tuple(exchange for exchange, _ in entry.value))


OTHER = "other"
"""Role of a fact about a binding table under another prefix."""

ELSEWHERE = "elsewhere"
"""Role of a fact about a list whose messages were sent to the end of its name: the rest may be another prefix."""

HELD_UNDER = "held under"
"""The registry of prefixes whose hash or index of unacked messages was read, "" for the keyspace's own."""

UNCLAIMED = "unclaimed"
"""Role of a fact about a key that is no list, but would have to be one if its name is that of a queue."""

MOST_UNCLAIMED = 10_000
"""So many of these one reader remembers: nobody has as many queues."""


def is_plausible(name: str) -> bool:
    """Whether somebody may call a queue so: names with long numbers are those of single things."""
    return len(name) <= 100 and not _LONG_NUMBER.search(name)


_LONG_NUMBER = re.compile("[0-9]{4}|[0-9a-f]{8}")


def _other_prefix(key: bytes, prefix: str, end: bytes) -> str | None:
    """What follows ``prefix`` in the prefix under which this would be the usual name; None for any other name."""
    start = len(to_bytes(prefix))
    return to_text(key[start : -len(end)]) if key.endswith(end) and len(key) > start + len(end) else None


def _list_facts(entry: Entry, queue: str, step: str, settings: Settings, *, certain: bool) -> Iterator[Fact]:
    """The messages of a list, if it is one of kombu's."""
    if settings.sep is None and step == "0" and not is_control(queue):
        found = _bucket_in(queue, entry.value)
        if found is not None:
            queue, sep, step = found
            yield Fact(FactKind.REGISTRY, "separator", entry.key, entry.redis_type, values=(to_bytes(sep),))
    elif step != "0" and _is_unbraced(queue, entry.value):
        queue = bindings.without_braces(queue) or queue
    about = partial(Fact, key=entry.key, redis_type=entry.redis_type, queue=queue, ttl_ms=entry.ttl_ms)
    if is_control(queue):
        yield about(FactKind.TOKEN, "control", values=(b"%d" % len(entry.value),))
        return
    items = [(raw, _decoded(raw)) for raw in entry.value]
    messages = [message for _, message in items if message is not None]
    if messages and all(is_meant_elsewhere(message.exchange, message.routing_key, queue) for message in messages):
        others = {queue.removesuffix(message.routing_key) for message in messages}
        if len(others) == 1:
            yield about(FactKind.TOKEN, ELSEWHERE, values=tuple(map(to_bytes, others)))
        return
    if not (certain or messages or queue == DEFAULT_QUEUE or any(looks_like_message(raw) for raw in entry.value)):
        return
    proven = False
    for index, (raw, message) in enumerate(items, entry.offset):
        tag = _unnamed(raw) if message is None else message.tag
        values = (b"message", raw)
        exchange, key = (None, None) if message is None else (message.exchange, message.routing_key)
        # The member is what makes the queue one in use: the name to which the publisher sent the message.
        member = to_bytes(key or "") if exchange == "" else None
        proven = proven or (message is not None and str(message.properties.get("priority")) == step)
        yield about(FactKind.RECORD, "waiting", job_id=tag, scope=queue, label=step, index=index, values=values, member=member)
        if exchange:
            yield about(FactKind.NOTE, "copy", job_id=tag, index=index)
    if proven and int(step) not in settings.steps:
        yield Fact(FactKind.REGISTRY, "step", entry.key, entry.redis_type, values=(step.encode(),))


def _is_unbraced(queue: str, items: Sequence[bytes]) -> bool:
    """Whether all messages that were sent by name were sent to this name without its braces, by kombu 4.6.8."""
    unbraced = bindings.without_braces(queue)
    if unbraced is None:
        return False
    messages = [message for message in map(_decoded, items) if message is not None]
    return {message.routing_key for message in messages if message.exchange == ""} == {unbraced}


_LANE = re.compile(r"(.*\D)([1-9][0-9]{0,8})", re.DOTALL)


def _bucket_in(queue: str, items: Sequence[bytes]) -> tuple[str, str, str] | None:
    """Queue, separator and bucket of a list, where its messages name the queue with which the list's name begins.

    kombu puts a message into a bucket of no more than its priority, so a queue that was only renamed is none.
    """
    parts = _LANE.fullmatch(queue)
    if parts is None:
        return None
    messages = [message for message in map(_decoded, items) if message is not None]
    names = {message.routing_key for message in messages if message.exchange == ""}
    name = next(iter(names), "")
    if len(names) != 1 or not name or not parts[1].startswith(name) or parts[1] == name:
        return None
    step = int(parts[2])
    if any(step_of(message.properties.get("priority"), (0, step)) != step for message in messages):
        return None
    return name, parts[1][len(name) :], parts[2]


def _held_facts(entry: Entry, *, certain: bool, label: str | None = None) -> Iterator[Fact]:
    """The messages of a hash that consumers have, if it is kombu's. ``label``: the prefix whose hash it may be instead."""
    about = partial(Fact, key=entry.key, redis_type=entry.redis_type, ttl_ms=entry.ttl_ms)
    found: list[tuple[bytes, bytes, tuple[Message, str, str] | None]] = []
    for tag, raw in entry.value.items():
        found.append((tag, raw, _decoded_delivery(raw) if certain or raw.startswith(HELD_START) else None))
    if not certain and all(delivery is None for _, _, delivery in found):
        return
    for tag, raw, delivery in found:
        job_id = to_text(tag)
        yield about(FactKind.RECORD, "unacked", job_id=job_id, label=label, values=(b"delivery", raw))
        if delivery is not None:
            _, exchange, routing_key = delivery
            if not exchange:
                yield about(FactKind.NOTE, "claim", job_id=job_id, scope=routing_key, queue=routing_key, label=label)


def _decoded(raw: bytes) -> Message | None:
    try:
        return decode(raw)
    except MalformedValue:
        return None


def _decoded_delivery(raw: bytes) -> tuple[Message, str, str] | None:
    try:
        return decode_delivery(raw)
    except MalformedValue:
        return None


def is_meant_elsewhere(exchange: str, routing_key: str, queue: str) -> bool:
    """Whether a message was sent to a queue with the end of this name: the rest is the prefix of another keyspace."""
    return exchange == "" and routing_key != "" and queue != routing_key and queue.endswith(routing_key)


def looks_like_message(raw: bytes) -> bool:
    """Whether a text was meant to be a message."""
    return raw.startswith(b"{") and any(word in raw for word in MESSAGE_WORDS)


def _unnamed(raw: bytes) -> str:
    """A name for a list entry that has none, because it is no message."""
    return f"no-message-{zlib.crc32(raw):08x}-{len(raw)}"


# Facts to totals


def tally(fact: Fact, totals: Totals, settings: Settings = USUAL) -> None:
    """Counts what readers and the rules about the whole keyspace need. What it grows with: queues, bindings, kinds of damage."""
    if fact.kind is FactKind.ODD:
        totals.count_and_sample("odd key", to_text(fact.key), fact.role)
        return
    queue = fact.queue or ""
    match fact.role:
        case "waiting":
            label = bucket_label(queue, step_in(fact))
            totals.maximum("length", (fact.index or 0) + 1, label)
            totals.count("sent by name", queue, int(fact.member == to_bytes(queue)))
        case "claim":
            totals.count("sent by name", queue)
        case "unacked" | "index":
            totals.name(HELD_UNDER, [fact.label or ""])
        case "binding":
            _tally_bindings(fact, totals, settings)
        case "separator":
            totals.name(bindings.SEPARATORS, map(to_text, fact.values))
        case "step":
            totals.name(PROVEN, map(to_text, fact.values))
        case "unclaimed":
            known = totals.names.get(UNCLAIMED, ())
            if len(known) < MOST_UNCLAIMED:
                totals.name(UNCLAIMED, [f"{queue}{SEP}{to_text(fact.key)}"])
        case "permanent":
            totals.count("permanent")
        case _ if fact.role == OTHER:
            totals.name("other prefixes", map(to_text, fact.values))
        case _ if fact.role == ELSEWHERE:
            totals.name(ELSEWHERE, map(to_text, fact.values))
        case "control":
            if is_reply(queue):
                totals.count_and_sample("replies", to_text(fact.key), "lasting" if fact.ttl_ms is None else "expiring")
        case "mutex":
            totals.maximum("mutex ttl", -1 if fact.ttl_ms is None else fact.ttl_ms)


def _tally_bindings(fact: Fact, totals: Totals, settings: Settings) -> None:
    for raw in fact.values:
        member = to_text(raw)
        sep = settings.sep or (SEP if SEP in member else bindings.separator_in(member) or SEP)
        queue = member.rpartition(sep)[2]
        if is_control(queue):
            totals.count("reply bindings", number=int(is_reply(queue)))
        elif not bindings.register(totals, fact.label or "", member, settings.sep):
            totals.count_and_sample("odd member", to_text(fact.key), fact.role)


# Facts to a job


BucketSpans = Mapping[tuple[str, int], tuple[int, int]]
"""For each bucket of each queue: how many messages are popped before its first one, and how many it has."""


def _bucket_spans(totals: Totals) -> BucketSpans:
    lengths: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for (measure, label), length in totals.maxima.items():
        if measure == "length":
            queue, step = parse_bucket_label(label)
            queue, step = bucket_of(queue, step, totals) or (queue, step)
            lengths[queue].append((step, length))
    spans = {}
    for queue, buckets in lengths.items():
        before = 0
        for step, length in sorted(buckets):
            spans[queue, step] = (before, length)
            before += length
    return spans


bucket_spans_of = remember_last(_bucket_spans)
"""The buckets in complete totals, worked out once for all jobs."""


def read(subject: Subject, keyspace: Keyspace) -> Job | None:
    """The job that the facts describe; None where only an index or another place of the message speaks."""
    view = view_of(subject)
    if view.message_fact is None or is_foreign(view, keyspace.totals):
        return None
    if view.message is None:
        return Job(view.job_id, view.queue, "", State.UNKNOWN, payload=text_of(view.message_fact))
    known = bindings_of(keyspace.totals)
    queue = view.queue_among(known) or ""
    steps, settings = steps_of(keyspace), settings_of(keyspace)
    step = view.step(steps)
    if view.waiting:
        queue, step = bucket_of(queue, step, keyspace.totals) or (queue, step)
    record, bound = view.record(view.message), known.by_queue.get(queue, ())
    position = _position(view, queue, step, keyspace.totals)
    # A bucket that only messages prove is remembered: a target does not have it unless its URL says so.
    queued = QueuedRecord(
        queue, record, text_of(view.message_fact), step, keyspace.now_ms, bound, position, settings.steps, settings.visibility_ms
    )
    return job_of(view.job_id, queued)


def is_foreign(view: View, totals: Totals) -> bool:
    """Whether a message belongs to a keyspace under another prefix, as binding tables or lists under that prefix say."""
    if view.other_prefix is not None and view.other_prefix in totals.names.get(ELSEWHERE, ()):
        return True
    others = totals.names.get("other prefixes", ())
    return bool(others) and (view.other_prefix in others or bindings.is_of_another_prefix(view.queue, totals))


def other_prefixes(totals: Totals) -> Collection[str]:
    """See KeyFamily.other_prefixes. A keyspace of its own has a binding, a list with messages, or unacked messages."""
    others = totals.names.get("other prefixes", set[str]()) | totals.names.get(ELSEWHERE, set[str]())
    lists = (parse_bucket_label(label)[0] for measure, label in totals.maxima if measure == "length")
    is_own = (
        totals.names.get("bound")
        or not others.issuperset(totals.names.get(HELD_UNDER, ()))
        or not all(bindings.is_of_another_prefix(queue, totals) for queue in lists)
    )
    return () if is_own else others


def has_twin(subject: Subject, keyspace: Keyspace) -> bool:
    """Whether the exchange to which the message was published leads to several queues: each of them gets it, with one tag."""
    message = view_of(subject).message
    return message is not None and len(bindings_of(keyspace.totals).queues(message.exchange, message.routing_key)) > 1


def _position(view: View, queue: str, step: int, totals: Totals) -> int | None:
    """A task with an eta has its place in the queue like any other: the worker that pops it keeps it until it is due."""
    if not view.waiting:
        return None
    own = view.waiting[0]
    before, length = bucket_spans_of(totals).get((queue, step), (0, 0))
    return before + max(0, length - 1 - (own.index or 0))
