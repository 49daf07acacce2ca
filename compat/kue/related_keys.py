"""Keys related to a kue job: all that may speak of it, so that it can be seen at one moment. Called by ``family.py``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from ...schema.fact import Subject
from ...schema.family import Keyspace
from ...schema.job import State
from ...schema.key_refs import CountCheck, KeyRef, known_keys
from ...schema.rule import Finding
from ...schema.text import to_bytes, to_text
from .keys import WORDS, layout, padded
from .view import view_of


def related_keys(subject: Subject, keyspace: Keyspace) -> Iterator[KeyRef]:
    """The hash, the log, the index for searches and, under each form of its id, the indexes of every state; those by type for the
    types that are told.
    """
    names, view = layout(keyspace.prefix), view_of(subject)
    types = frozenset({view.queue, *(fact.queue or "" for fact in view.places)} - {""})
    states = frozenset({*WORDS.values(), view.word or "", *(fact.label or "" for fact in view.places)} - {""})
    members, indexes = (padded(subject.job_id).encode(), subject.job_id.encode()), _indexes(keyspace.prefix, types, states)
    yield KeyRef(names.key("record", id=subject.job_id), "hash")
    yield KeyRef(names.key("log", id=subject.job_id), "list")
    for redis_type in names.patterns["search_object"].redis_types:
        yield KeyRef(names.key("search_object", id=subject.job_id), redis_type)
    for fact in view.search_facts:
        if fact.role == "search_object":
            yield KeyRef(names.key("search_word", code=to_text(fact.member or b"")), fact.redis_type, (subject.job_id.encode(),))
    yield from (KeyRef(index, "zset", members) for index in indexes)
    yield from (ref for ref in known_keys(subject) if ref.key not in indexes or not set(members).issuperset(ref.items))
    if types:
        yield KeyRef(names.key("types"), "set", tuple(map(to_bytes, sorted(types))))


@lru_cache(maxsize=1000)
def _indexes(prefix: str, types: frozenset[str], states: frozenset[str]) -> tuple[bytes, ...]:
    """The names of the indexes: those of one type and kue's own states for nearly all jobs."""
    names = layout(prefix)
    by_state = (names.key("by_state", state=state) for state in states)
    by_type = (names.key("by_type", queue=queue, state=state) for queue in types for state in states)
    return (names.key("all"), *by_state, *by_type)


def count_checks(finding: Finding, keyspace: Keyspace) -> Iterator[CountCheck]:
    """Tokens and waiting jobs of a type, and the counter of ids."""
    names, queue = layout(keyspace.prefix), finding.queue or ""
    match finding.rule:
        case "KUE-8" | "KUE-9":
            yield CountCheck("tokens", queue, ("LLEN", names.key("tokens", queue=queue)))
            yield CountCheck("waiting", queue, ("ZCARD", names.key("by_type", queue=queue, state=WORDS[State.WAITING])))
        case "KUE-26":
            yield CountCheck("ids", "", ("GET", names.key("ids")), is_maximum=True)
