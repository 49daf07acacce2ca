"""Whereabouts of a bee job: every key that may speak of it, so that it can be seen at one moment. Called by ``family.py``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ...schema.fact import Subject
from ...schema.rule import Keyspace
from ...schema.spot import Spot, spoken
from ...schema.text import to_bytes, to_text
from .keys import SETS, layout
from .view import View, view_of

MOST_QUEUES = 50
"""Other jobs are looked for in no more queues."""
MOST_OTHERS = 100
"""A job that speaks of more others is not looked at again: all of them would have to be."""


def whereabouts(subject: Subject, keyspace: Keyspace) -> Iterator[Spot]:
    """The record, the sorted sets of its queues, its list, worker and tags; and the same of the jobs that it depends on."""
    names, view = layout(keyspace.prefix), view_of(subject)
    others = _others(view)
    if len(others) > MOST_OTHERS:
        return
    for spot in spoken(subject):
        # How long a list is counts as well.
        yield Spot(spot.key, "list") if spot.redis_type == "list" else spot
    own_queues = {view.queue, *(fact.queue or "" for fact in view.places)}
    # Where another job stands is told by its record alone.
    all_queues = own_queues.union(islice(keyspace.family.queues(keyspace), MOST_QUEUES)) if others else own_queues
    for job_id in (subject.job_id, *sorted(others)):
        yield Spot(names.key("record", id=job_id), "hash")
        yield Spot(names.key("dependencies", id=job_id), "set")
        for queue in sorted(own_queues if job_id == subject.job_id else all_queues):
            for role in SETS:
                yield Spot(names.key(role, queue=queue), "zset", (to_bytes(job_id),))
    if view.own_list is not None:
        yield Spot(names.key("hashes", hashed=view.own_list), "list")
    if view.worker:
        yield Spot(names.key("held", worker=view.worker), "set", (to_bytes(subject.job_id),))


def _others(view: View) -> set[str]:
    """The job's original, and the jobs that it waits for."""
    original = view.fields.get(b"duplicate")
    return {*view.needs, *(each.job_id for each in view.told), *({to_text(original)} if original is not None else ())}
