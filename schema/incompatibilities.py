"""Incompatibilities: what of one job a family can't express, as a finding. Called by the families' ``writer.py``."""

from __future__ import annotations

from .job import Job
from .rule import Finding, Severity


def error(job: Job, rule: str, detail: str) -> Finding:
    """What keeps the family from holding the job."""
    return Finding(rule, Severity.ERROR, job.id, "", job.queue, detail)


def warning(job: Job, rule: str, detail: str) -> Finding:
    """What the family keeps of the job without acting on it."""
    return Finding(rule, Severity.WARNING, job.id, "", job.queue, detail)


NOT_BY_JOBS = (
    "it is blocked, but by no job: one that waits for a throttle of reqless has no equal here; let it run first, or raise the "
    "throttle's maximum. One that names nothing would never go on"
)
"""Why a blocked job that depends on none can't go to a family that has no throttles."""
