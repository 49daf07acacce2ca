"""Generated jobs, each with the record that is to be written, and little else.

A generator that draws records, what stands in Redis, need not read each as a job only for the writer to make the same record of
it again: that is most of the work. Made by the families' ``generate.py``, and taken by their writers.
"""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from ..schema.job import Job


@frozen(kw_only=True)
class GeneratedJob(Job):
    """A job with its family's own record of it. Beside the state only those fields are filled in that the writer asks for."""

    record: Any = field(eq=False, repr=False)
