"""Whereabouts of a kue job: every key that may speak of it, so that it can be seen at one moment. Called by ``family.py``."""

from __future__ import annotations

from collections.abc import Iterator

from ...schema.fact import Subject
from ...schema.job import State
from ...schema.rule import Finding, Keyspace
from ...schema.spot import Recount, Spot, spoken
from ...schema.text import to_bytes
from .keys import WORDS, layout, padded
from .view import view_of


def whereabouts(subject: Subject, keyspace: Keyspace) -> Iterator[Spot]:
    """The hash, the log and, under each form of its id, the indexes of every state; those by type for the types that are told."""
    yield from spoken(subject)
    names, view = layout(keyspace.prefix), view_of(subject)
    yield Spot(names.key("record", id=subject.job_id), "hash")
    yield Spot(names.key("log", id=subject.job_id), "list")
    types = {view.queue, *(fact.queue or "" for fact in view.places)} - {""}
    states = {*WORDS.values(), view.word or "", *(fact.place or "" for fact in view.places)} - {""}
    indexes = [names.key("all")]
    for state in states:
        indexes.append(names.key("by_state", state=state))
        indexes += [names.key("by_type", queue=queue, state=state) for queue in types]
    for member in (padded(subject.job_id), subject.job_id):
        for index in indexes:
            yield Spot(index, "zset", member.encode())
    for queue in types:
        yield Spot(names.key("types"), "set", to_bytes(queue))


def recounts(finding: Finding, keyspace: Keyspace) -> Iterator[Recount]:
    """Tokens and waiting jobs of a type, and the counter of ids."""
    names, queue = layout(keyspace.prefix), finding.queue or ""
    match finding.rule:
        case "KUE-8" | "KUE-9":
            yield Recount("tokens", queue, ("LLEN", names.key("tokens", queue=queue)))
            yield Recount("waiting", queue, ("ZCARD", names.key("by_type", queue=queue, state=WORDS[State.WAITING])))
        case "KUE-26":
            yield Recount("ids", "", ("GET", names.key("ids")), is_maximum=True)
