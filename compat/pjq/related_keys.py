"""Keys related to a pjq job: all that may speak of it, so that it can be seen at one moment. Called by ``family.py``."""

from __future__ import annotations

from collections.abc import Iterator

from ...schema.fact import Subject
from ...schema.family import Keyspace
from ...schema.key_refs import KeyRef, known_keys
from ...schema.text import to_bytes
from .keys import CONTAINERS, JS_1, layout
from .view import View, view_of

MOST_QUEUES = 50
"""A job of which nothing tells the queue is looked for in all of them, if there are no more."""


def related_keys(subject: Subject, keyspace: Keyspace) -> Iterator[KeyRef]:
    """The hash, the containers of the queues where it may be, and what these say of its worker."""
    names, view = layout(keyspace.prefix), view_of(subject)
    queues = _queues(view, keyspace)
    if len(queues) > MOST_QUEUES:
        return
    yield from known_keys(subject)
    yield KeyRef(names.key("record", id=subject.job_id), "hash")
    known = keyspace.totals.names
    # Who knows no container yet, but the job's name alone, looks for those of the first program as well.
    roles = CONTAINERS - JS_1 if known.get("current keys") and not known.get("js-1 keys") else CONTAINERS
    own, worker = to_bytes(subject.job_id), view.fields.get(b"worker_uuid")
    for queue in sorted(queues):
        for role in sorted(roles):
            yield KeyRef(names.key(role, queue=queue), names.patterns[role].redis_types[0], (own,))
        if worker is not None:
            for role in ("idle", "busy", "seen"):
                yield KeyRef(names.key(role, queue=queue), names.patterns[role].redis_types[0], (worker,))


def _queues(view: View, keyspace: Keyspace) -> set[str]:
    queues = {fact.queue or "" for fact in view.all_places()}
    named = (view.members or {}).get("queue_name")
    if isinstance(named, str):
        queues.add(named)
    return queues or set(keyspace.totals.names.get("queues", ()))
