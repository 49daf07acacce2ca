"""Keys related to a qless job: all that may speak of it, so that it can be seen at one moment. Called by ``family.py``."""

from __future__ import annotations

from collections.abc import Iterator

from ...schema.fact import Subject
from ...schema.family import Keyspace
from ...schema.key_refs import KeyRef, known_keys
from ...schema.text import to_bytes, to_text
from .keys import INDEXES, Scope, layout
from .reader import MOST_DEPENDENCIES
from .view import view_of


def related_keys(subject: Subject, keyspace: Keyspace) -> Iterator[KeyRef]:
    """The hash, history and sets of the job, all zsets where it may stand, and what tells of the jobs that it waits for.

    Nothing for what is no job: a tag or a worker is as large as all of its jobs.
    """
    names, view, member = layout(keyspace.prefix), view_of(subject), to_bytes(subject.job_id)
    others = sorted({*view.dependencies, *view.replies})
    if subject.scope != Scope.JOB or len(others) > MOST_DEPENDENCIES:
        return
    yield from known_keys(subject)
    yield KeyRef(names.key("record", id=subject.job_id), "hash")
    for role in ("history", "dependencies", "dependents"):
        yield KeyRef(names.key(role, id=subject.job_id), names.redis_type(role))
    for queue in sorted({view.queue, *(fact.queue or "" for fact in view.places)}):
        for role in INDEXES:
            yield KeyRef(names.key(role, queue=queue), "zset", (member,))
    for role in ("completed", "tracked"):
        yield KeyRef(names.key(role), "zset", (member,))
    if view.stored.group is not None:
        yield KeyRef(names.key("failed", group=view.stored.group), "list", (member,))
    if view.fields.get(b"worker"):
        yield KeyRef(names.key("held", worker=to_text(view.fields[b"worker"])), "zset", (member,))
    for tag in view.stored.tags or ():
        yield KeyRef(names.key("tagged", tag=tag), "zset", (member,))
    for throttle in view.stored.throttles or ():
        yield KeyRef(names.key("slots", throttle=throttle), "zset", (member,))
        yield KeyRef(names.key("pending", throttle=throttle), "zset", (member,))
    for other in others:
        yield KeyRef(names.key("record", id=other), "hash")
        yield KeyRef(names.key("dependencies", id=other), "set")
        yield KeyRef(names.key("dependents", id=other), "set", (member,))
