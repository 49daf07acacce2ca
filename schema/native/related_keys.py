"""Keys related to a native job: every key that may speak of it, all of them in one slot. Called by ``family.py``."""

from __future__ import annotations

from collections.abc import Iterator

from ..fact import Subject
from ..family import Keyspace
from ..key_refs import CountCheck, KeyRef, known_keys
from ..rule import Finding
from ..text import to_bytes, to_text
from .keys import QueueKeys
from .reader import view_of


def related_keys(subject: Subject, keyspace: Keyspace) -> Iterator[KeyRef]:
    """The hash, places and outbox of its queue, and what the consumers hold that are named in it or were seen to hold it."""
    yield from known_keys(subject)
    if not subject.scope:
        return
    keys, view, member = QueueKeys(keyspace.prefix, subject.scope), view_of(subject), to_bytes(subject.job_id)
    yield KeyRef(keys.job(subject.job_id), "hash")
    yield KeyRef(keys.needs(subject.job_id), "set")
    for zset in (keys.waiting, keys.scheduled, keys.dead, keys.done, keys.outbox):
        yield KeyRef(zset, "zset", (member,))
    yield KeyRef(keys.blocked, "set", (member,))
    holders = {fact.label for fact in view.places if fact.role == "held" and fact.label}
    if b"consumer" in view.fields:
        holders.add(to_text(view.fields[b"consumer"]))
    for holder in holders:
        yield KeyRef(keys.held(holder), "zset", (member,))
        yield KeyRef(keys.consumers, "zset", (to_bytes(holder),))


def count_checks(finding: Finding, keyspace: Keyspace) -> Iterator[CountCheck]:
    """Tokens and waiting jobs of a queue, and its sequence."""
    if not finding.queue:
        return
    keys = QueueKeys(keyspace.prefix, finding.queue)
    match finding.rule:
        case "NATIVE-14":
            yield CountCheck("tokens", finding.queue, ("LLEN", keys.wake))
            yield CountCheck("waiting", finding.queue, ("ZCARD", keys.waiting))
        case "NATIVE-15":
            yield CountCheck("sequence", finding.queue, ("HGET", keys.meta, "sequence"), is_maximum=True)
