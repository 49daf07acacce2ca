"""Whereabouts of a kickq job: every key that may speak of it, so that it can be seen at one moment. Called by ``family.py``."""

from __future__ import annotations

from collections.abc import Iterator

from ...schema.fact import Subject
from ...schema.rule import Finding, Keyspace
from ...schema.spot import Recount, Spot, spoken
from .keys import WORDS, layout
from .view import view_of


def whereabouts(subject: Subject, keyspace: Keyspace) -> Iterator[Spot]:
    """The hash, the sets of all states, the three sorted sets of times, and the lists of the queues that are told."""
    yield from spoken(subject)
    names, view = layout(keyspace.prefix), view_of(subject)
    yield Spot(names.key("record", id=subject.job_id), "hash")
    for state in WORDS:
        yield Spot(names.key("state", state=state), "set", (view.member,))
    for role in ("time_index", "scheduled", "purge"):
        yield Spot(names.key(role), "zset", (view.member,))
    if view.fact is not None:
        yield Spot(names.key("queue", queue=view.queue), "list", (view.member,))


def recounts(finding: Finding, keyspace: Keyspace) -> Iterator[Recount]:
    """The counter of ids."""
    if finding.rule == "KICKQ-21":
        yield Recount("ids", "", ("GET", layout(keyspace.prefix).key("ids")), is_maximum=True)
