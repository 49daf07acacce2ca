"""Keys related to a kombu message: all that may speak of it, so that it can be seen at one moment. Called by ``family.py``."""

from __future__ import annotations

from collections.abc import Iterator

from ...schema.fact import Subject
from ...schema.family import Keyspace
from ...schema.key_refs import KeyRef
from ...schema.text import to_bytes
from .keys import layout, settings_of
from .record import Message, encode
from .view import text_of, view_of


def related_keys(subject: Subject, keyspace: Keyspace) -> Iterator[KeyRef]:
    """Hash and index of unacked messages by its tag, and the lists in which it was seen by its text.

    A list that it has gone into since needs no look: where else a message stands breaks no rule.
    """
    names, view, tag = layout(keyspace.prefix, settings_of(keyspace)), view_of(subject), to_bytes(subject.job_id)
    hashes = {fact.key for fact in (view.held, *view.claims) if fact is not None}
    for key in (names.key("unacked"), *sorted(hashes)):
        yield KeyRef(key, "hash", (tag,))
    indexes = {names.key("index")} | ({view.index.key} if view.index else set())
    for key in sorted(indexes):
        yield KeyRef(key, "zset", (tag,))
    for fact in view.waiting:
        yield KeyRef(fact.key, "list", (text_of(fact),))
    if view.message is not None:
        for fact in view.copies:
            for text in _texts(view.message):
                yield KeyRef(fact.key, "list", (text,))


def _texts(message: Message) -> Iterator[bytes]:
    """How a copy of a consumer's message stands in a list: as it was sent, or as kombu puts it back."""
    yield encode(message)
    info = {**message.properties["delivery_info"], "redelivered": True}
    yield encode(message.with_headers(redelivered=True).with_properties(delivery_info=info))
