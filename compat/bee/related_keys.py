"""Keys related to a bee job: all that may speak of it, so that it can be seen at one moment. Called by ``family.py``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from ...schema.fact import Subject
from ...schema.family import Keyspace
from ...schema.key_refs import KeyRef, known_keys
from ...schema.text import to_bytes, to_text
from .keys import SETS, layout
from .view import View, view_of

MOST_QUEUES = 50
"""Other jobs are looked for in no more queues."""
MOST_OTHERS = 100
"""A job that speaks of more others is not looked at again: all of them would have to be."""


def related_keys(subject: Subject, keyspace: Keyspace) -> Iterator[KeyRef]:
    """The record, the sorted sets of its queues, its list, worker and tags; and the same of the jobs that it depends on."""
    names, view = layout(keyspace.prefix), view_of(subject)
    others = _others(view)
    if len(others) > MOST_OTHERS:
        return
    for ref in known_keys(subject):
        # How long a list is counts as well.
        yield KeyRef(ref.key, "list") if ref.redis_type == "list" else ref
    own_queues = {view.queue, *(fact.queue or "" for fact in view.places)}
    # Where another job stands is told by its record alone.
    all_queues = own_queues.union(islice(keyspace.family.queues(keyspace), MOST_QUEUES)) if others else own_queues
    for job_id in (subject.job_id, *sorted(others)):
        yield KeyRef(names.key("record", id=job_id), "hash")
        yield KeyRef(names.key("dependencies", id=job_id), "set")
        for queue in sorted(own_queues if job_id == subject.job_id else all_queues):
            for role in SETS:
                yield KeyRef(names.key(role, queue=queue), "zset", (to_bytes(job_id),))
    if view.unique_list is not None:
        yield KeyRef(names.key("hashes", hashed=view.unique_list), "list")
    if view.worker:
        yield KeyRef(names.key("held", worker=view.worker), "set", (to_bytes(subject.job_id),))


def _others(view: View) -> set[str]:
    """The job's original, and the jobs that it waits for."""
    original = view.fields.get(b"duplicate")
    return {*view.needs, *(each.job_id for each in view.awaited), *({to_text(original)} if original is not None else ())}
