"""Features of jobs, and what each family makes of them: asked of the families themselves, as ``docs/families.md`` tells it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import redis
from attrs import evolve, field, frozen
from ferryman.schema.family import KeyFamily, get_family
from ferryman.schema.job import Job, State
from ferryman.schema.rule import Severity
from ferryman.testing.keyspaces import dump, read_keyspace, store

from .mending import NOW

PLAIN = Job("7", "mail", "mail", State.WAITING, payload=b"{}", created_at=NOW - 9000, updated_at=NOW - 9000)
"""A job that every family can hold."""

LINE = b"a line that is easily found"


class Support(StrEnum):
    """What becomes of a feature."""

    OWN = "yes"
    """The system has it, and acts on it as far as it acts on such things."""
    EMULATED = "emulated"
    """Its workers get it by other means, in which something of it is lost."""
    OVERFLOW = "overflow"
    """The system does not know it. It is kept in the job's record, and comes back on the way back."""
    REFUSED = "refused"
    """Such a job is not carried."""


@frozen
class Feature:
    """Something that a job may have."""

    title: str
    changes: Mapping[str, Any]
    """How such a job differs from a plain one."""
    of: State = State.WAITING
    """In which state jobs have it."""
    fields: tuple[str, ...] = field(default=())
    """The canonical fields that it is about, if not all that differ."""

    @property
    def job(self) -> Job:
        """A job that has it."""
        return evolve(PLAIN, state=self.of, **self.changes)


FEATURES = (
    Feature("priority", {"priority": 5, "rank": 5}, fields=("priority",)),
    Feature("delayed jobs", {"due_at": NOW + 60_000}, of=State.SCHEDULED),
    Feature("completed jobs", {"finished_at": NOW - 5000}, of=State.COMPLETED, fields=("state",)),
    Feature("failed jobs", {"finished_at": NOW - 5000}, of=State.FAILED, fields=("state",)),
    Feature("cancelled jobs", {}, of=State.CANCELLED),
    Feature("dependencies", {"depends_on": ("8",)}, of=State.BLOCKED),
    Feature("attempts made", {"attempts": 2}),
    Feature("attempts allowed", {"max_attempts": 3}),
    Feature("result", {"result": b'"sent"', "finished_at": NOW - 5000}, of=State.COMPLETED, fields=("result",)),
    Feature("error", {"error": "ValueError", "finished_at": NOW - 5000}, of=State.FAILED, fields=("error",)),
    Feature("time it was created", {}, fields=("created_at",)),
    Feature("progress", {"progress": 0.5}),
    Feature("log lines", {"logs": (LINE,)}),
    Feature("history of another system", {"history": ({"what": "seen"},)}),
    Feature("tags", {"tags": ("red",)}),
    Feature("unique key", {"unique_key": "order-7"}),
    Feature("time limit", {"ttl": 60_000}),
    Feature("name other than the queue's", {"name": "proj.tasks.send"}),
    Feature("binary payload", {"payload": b"\x80\x04\x95"}),
    Feature("id that is no number", {"id": "4c1ff1b6-3bd2-11f1-9829-5e70f3e6c8f7"}),
)


EMULATED = {
    ("priority", "kombu"): "four lists for all priorities",
    ("delayed jobs", "kombu"): "an eta, for which a worker waits with the message in its hands",
}
"""Where a system's own means are others: nobody could tell that from what comes back."""

ORDER = "order inside a priority"


def support_of(family: KeyFamily, feature: Feature, client: redis.Redis) -> Support:
    """What the family makes of the feature, tried in an empty database."""
    job = feature.job
    if any(finding.severity is Severity.ERROR for finding in family.incompatibilities(job)):
        return Support.REFUSED
    client.flushdb()
    store(client, family, family.default_prefix, [job], NOW)
    entries = dump(client)
    seen = read_keyspace(family, entries.values(), family.default_prefix, NOW)
    (again,) = [
        found for found in (family.read(subject, seen.keyspace) for subject in seen.subjects.values()) if found is not None
    ]
    assert evolve(again, extra={}) == evolve(job, extra={})
    fields = feature.fields or tuple(name for name in feature.changes if name in ("id", "state") or hasattr(job, name))
    if any(is_in_overflow(name, entries) for name in fields):
        return Support.OVERFLOW
    return Support.EMULATED if (feature.title, family.name) in EMULATED else Support.OWN


def is_in_overflow(name: str, entries: Mapping[bytes, Any]) -> bool:
    """Whether a canonical field stands in an overflow, wherever in a keyspace the text of that is."""
    texts = repr([entry.value for entry in entries.values()]).replace("\\", "")
    _, _, rest = texts.partition('"fields":{')
    depth, end = 1, 0
    while depth and end < len(rest):
        depth += {"{": 1, "}": -1}.get(rest[end], 0)
        end += 1
    # Log lines, which are bytes, overflow elsewhere in some records.
    return f'"{name}":' in rest[:end] or (name == "logs" and base64.b64encode(LINE).decode() in texts)


def order_is_kept(family: KeyFamily, client: redis.Redis) -> bool:
    """Whether jobs of equal priority wait in the order of their places, whatever their ids and the order of writing."""
    client.flushdb()
    jobs = [evolve(PLAIN, id=job_id, position=position, rank=0) for job_id, position in (("9", 1), ("12", 0), ("3", 2))]
    store(client, family, family.default_prefix, jobs, NOW)
    seen = read_keyspace(family, dump(client).values(), family.default_prefix, NOW)
    found = [family.read(subject, seen.keyspace) for subject in seen.subjects.values()]
    waiting = sorted((job.position or 0, job.id) for job in found if job is not None)
    return [job_id for _, job_id in waiting] == ["12", "9", "3"]


def table(names: Sequence[str], client: redis.Redis) -> str:
    """All of it as Markdown, one column a family."""
    families = [get_family(name) for name in names]
    rows = [["", *names], ["---"] * (len(names) + 1)]
    rows += [[feature.title, *(str(support_of(family, feature, client)) for family in families)] for feature in FEATURES]
    rows.append([ORDER, *("yes" if order_is_kept(family, client) else "by id" for family in families)])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
