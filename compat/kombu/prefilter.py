"""The prefilter of kombu accepts messages that wait in their list, and in which no rule can find anything.

Any message that a consumer can take is sound as long as it waits once, no consumer has it, and its list is a queue of this
keyspace. Messages that a consumer has, those that came from another family, and those of Celery 3 are left to the rules.
tests/compat/kombu/test_prefilter.py holds every rule against it. Called by ``family.py``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from ...schema.errors import MalformedValue
from ...schema.fact import Entry, Fact, FactKind, Subject
from ...schema.job import State
from ...schema.memo import Memo
from ...schema.prefilter import Item, JobGroup, Member, Prefilter
from ...schema.text import to_bytes
from ...schema.totals import Totals
from ..timestamps import parse_timestamp
from .bindings import bucket_of, is_of_another_prefix, without_braces
from .keys import DEFAULT_QUEUE, LISTS, SEP, USUAL, Settings, bucket_label, is_control, layout
from .passthrough import HEADER
from .reader import is_meant_elsewhere, looks_like_message
from .record import Envelope, decode, decode_envelope, unreadable


class KombuPrefilter(Prefilter):
    """The keyspace under ``prefix`` at ``now_ms`` (Unix ms)."""

    def __init__(self, prefix: str, now_ms: int, settings: Settings = USUAL) -> None:
        self._prefix = prefix
        self._settings = settings
        self._layout = layout(prefix, settings)
        self._now_ms = now_ms
        self._lists = Memo(self._list)
        self._groups = Memo(_group)

    def number(self, job_id: str, scope: str) -> int:
        # Not of the scope: a consumer's copy of a message has none, and must leave the one that waits unverified.
        return int.from_bytes(hashlib.blake2b(to_bytes(job_id), digest_size=8).digest()) >> 1

    def items(self, entry: Entry, totals: Totals) -> Sequence[Item | None] | None:
        if entry.redis_type != "list" or entry.ttl_ms is not None or self._lists[entry.key] is None:
            return None
        queue, step, is_certain = self._lists[entry.key]
        if int(step) not in self._settings.steps:
            return None  # whether these are other steps, the priorities of all of them tell
        messages = list(map(_envelope_in, entry.value))
        if step != "0" and any(each is not None and each.routing_key == without_braces(queue) for each in messages):
            return None  # in a bucket of kombu 4.6.8
        for raw, message in zip(entry.value, messages, strict=True):
            if message is None and not _states_by_itself(raw, queue, is_certain):
                return None
            if message is None or message.exchange or message.routing_key == queue:
                continue
            if (
                queue.startswith(message.routing_key)
                or without_braces(queue) == message.routing_key
                or is_meant_elsewhere("", message.routing_key, queue)
            ):
                return None  # in a bucket whose name holds another separator, or of a keyspace under another prefix
        items = [None if message is None else self._item(message, queue) for message in messages]
        known = [(index, each) for index, (each, item) in enumerate(zip(messages, items, strict=True)) if each and item]
        if known:
            last, _ = known[-1]
            totals.maximum("length", entry.offset + last + 1, bucket_label(queue, int(step)))
            by_name = sum(message.exchange == "" and message.routing_key == queue for _, message in known)
            totals.count("sent by name", queue, by_name)
        return items

    def subject(self, key: bytes, record: tuple[bytes, ...], members: Iterable[Member], owned: Iterable[Entry]) -> Subject:
        queue, step, _ = self._lists[key]
        ((_, raw, _, index),) = members
        message = decode(raw)  # whoever reads the job does so again, and gets the same
        tag, values = message.tag, (b"message", raw)
        sent_to = to_bytes(message.routing_key) if message.exchange == "" else None
        fact = Fact(FactKind.RECORD, "waiting", key, "list", tag, queue, queue, step, member=sent_to, index=index, values=values)
        return Subject(tag, queue, (fact,), prefiltered=True)

    def is_settled(self, queue: str, totals: Totals) -> bool:
        return (
            not is_of_another_prefix(queue, totals)
            and bucket_of(queue, 0, totals) is None
            and bucket_of(queue, 1, totals) is None
        )

    def _list(self, key: bytes) -> tuple[str, str, bool] | None:
        """The queue and the bucket of a list, and whether its name alone proves that it is one; None for any other key."""
        match = next(self._layout.matches(key), None)
        if match is None or match.role not in LISTS or is_control(match.fields["queue"]):
            return None
        queue = match.fields["queue"]
        is_bucket = match.role == "bucket" and self._settings.separator == SEP
        is_certain = bool(self._prefix) or is_bucket or queue == DEFAULT_QUEUE
        return queue, match.fields.get("step", "0"), is_certain

    def _item(self, message: Envelope, queue: str) -> Item | None:
        """A waiting message; None where it takes a closer look."""
        if not isinstance(message.headers.get("task"), str) or HEADER in message.headers:
            return None
        if unreadable(message.headers):
            return None
        due_at = parse_timestamp(message.headers.get("eta"))
        state = State.WAITING if due_at is None or due_at <= self._now_ms else State.SCHEDULED
        return Item(self.number(message.tag, queue), self._groups[queue, state], None)


def _group(queue_and_state: tuple[str, State]) -> JobGroup:
    """The group of all messages of a queue in a state."""
    queue, state = queue_and_state
    return JobGroup(queue, state, ())


def _envelope_in(raw: bytes) -> Envelope | None:
    try:
        return decode_envelope(raw)
    except MalformedValue:
        return None


def _states_by_itself(raw: bytes, queue: str, is_certain: bool) -> bool:
    """Whether an item states alone in its list what it states among messages."""
    try:
        message = decode(raw)
    except MalformedValue:
        return is_certain or looks_like_message(raw)
    return not is_meant_elsewhere(message.exchange, message.routing_key, queue)
