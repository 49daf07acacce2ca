"""Lookup: one job by its queue and id. Only reads."""

from __future__ import annotations

from attrs import frozen

from ...migrations.atomic_read import open_reader
from ...migrations.probes import clock_ms
from ...operations.pages import _Pages
from ...schema.connection.address import Address
from ...schema.connection.connect import open_client
from ...schema.connection.pipeline import open_pipeline
from ...schema.fact import Subject
from ...schema.family import Keyspace
from ...schema.job import Job, State


@frozen
class FoundJob:
    """A job and the moment at which it was read."""

    job: Job
    now_ms: int
    reason: str = ""


def find(address: Address, queue: str, job_id: str) -> FoundJob | None:
    with open_client(address) as client, open_pipeline(client) as pipe, open_reader(address) as reader:
        now_ms = clock_ms(client)
        keyspace = Keyspace(address.key_family, address.prefix, now_ms)
        pages = _Pages(pipe, reader, keyspace, queue, State.WAITING, False)
        for scope in (queue, ""):
            subjects, others = pages._read([Subject(job_id, scope, ())])
            full = pages._with_totals(subjects, others)
            for subject in subjects:
                job = full.family.read(subject, full)
                if job is not None:
                    return FoundJob(job, now_ms)
    return None
