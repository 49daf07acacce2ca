"""Lookup: one job by its queue and id. Only reads."""

from __future__ import annotations

from attrs import frozen

from ...migrations.atomic_read import open_reader
from ...migrations.probes import clock_ms
from ...migrations.related_jobs import RelatedReader
from ...schema.connection.address import Address
from ...schema.connection.connect import open_client
from ...schema.fact import Subject
from ...schema.family import Keyspace
from ...schema.job import Job


@frozen
class FoundJob:
    """A job and the moment at which it was read."""

    job: Job
    now_ms: int
    reason: str = ""


def find(address: Address, queue: str, job_id: str) -> FoundJob | None:
    with open_client(address) as client, open_reader(address) as reader:
        now_ms = clock_ms(client)
        related = RelatedReader(reader, Keyspace(address.key_family, address.prefix, now_ms))
        for scope in (queue, ""):
            read = related.read([Subject(job_id, scope, ())])
            for subject in read.subjects:
                job = read.keyspace.family.read(subject, read.keyspace)
                if job is not None:
                    return FoundJob(job, now_ms)
    return None
