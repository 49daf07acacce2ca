"""Faults: what each family's ``faults.py`` starts from: a sound job that is written, at which one rule is to be broken."""

from __future__ import annotations

from ..schema.family import Target
from ..schema.job import Job
from ..schema.text import to_bytes


class FaultTarget:
    """A sound job as it was written, and where. Families add its record, and the names of the keys that belong to it."""

    def __init__(self, job: Job, target: Target) -> None:
        self.job = job
        self.id = to_bytes(job.id)
        self.prefix = target.prefix
        self.now_ms = target.now_ms
