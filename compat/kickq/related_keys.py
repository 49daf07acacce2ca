"""Keys related to a kickq job: all that may speak of it, so that it can be seen at one moment. Called by ``family.py``."""

from __future__ import annotations

from collections.abc import Iterator

from ...schema.fact import Subject
from ...schema.family import Keyspace
from ...schema.key_refs import CountCheck, KeyRef, known_keys
from ...schema.rule import Finding
from .keys import WORDS, layout
from .view import view_of


def related_keys(subject: Subject, keyspace: Keyspace) -> Iterator[KeyRef]:
    """The hash, the sets of all states, the three sorted sets of times, and the lists of the queues that are told."""
    yield from known_keys(subject)
    names, view = layout(keyspace.prefix), view_of(subject)
    yield KeyRef(names.key("record", id=subject.job_id), "hash")
    for state in WORDS:
        yield KeyRef(names.key("state", state=state), "set", (view.member,))
    for role in ("time_index", "scheduled", "purge"):
        yield KeyRef(names.key(role), "zset", (view.member,))
    if view.fact is not None:
        yield KeyRef(names.key("queue", queue=view.queue), "list", (view.member,))


def count_checks(finding: Finding, keyspace: Keyspace) -> Iterator[CountCheck]:
    """The counter of ids."""
    if finding.rule == "KICKQ-21":
        yield CountCheck("ids", "", ("GET", layout(keyspace.prefix).key("ids")), is_maximum=True)
