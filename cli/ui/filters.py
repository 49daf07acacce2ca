"""Filters: what a page's query says of the jobs that are meant, for lists and for actions on all that match."""

from __future__ import annotations

import time
from collections.abc import Mapping

from attrs import frozen

from ...operations import pages
from ...operations.pages import Cursor
from ...schema.connection.address import Address
from ...schema.errors import UsageError
from ...schema.job import Job, State
from ...schema.steering import JobFilter
from ...schema.text import to_bytes
from ..duration import parse_duration
from .view import View

FILTERS: Mapping[str, str] = {
    "task": "Task is",
    "text": "Payload contains",
    "reason": "Reason is, or error contains",
    "older": "Older than",
}
"""Parameters, with what they mean for people."""
SLICE = 200
"""Jobs that are read at once."""


@frozen
class Filtered:
    """Jobs that fit, how many were looked at for them, and where to go on; None: that was all."""

    jobs: tuple[Job, ...]
    looked_at: int
    next: Cursor | None


def said(view: View) -> dict[str, str]:
    """The filters that the query has."""
    return {name: view.get(name) for name in FILTERS if view.get(name)}


def job_filter(view: View) -> JobFilter:
    """The filter that the query names. Raises UsageError."""
    older = view.get("older").strip()
    try:
        ms = parse_duration(older, bare_is_seconds=True) if older else None
    except ValueError as error:
        raise UsageError(str(error)) from None
    text = view.get("text")
    return JobFilter(
        task=view.get("task") or None,
        older_than_ms=ms,
        text=to_bytes(text) if text else None,
        reason=view.get("reason") or None,
    )


def filtered(
    address: Address,
    queue: str,
    state: State,
    chosen: JobFilter,
    limit: int,
    after: Cursor,
    *,
    newest: bool,
    now_ms: int,
    patience_s: float,
) -> Filtered | None:
    """At least ``limit`` jobs that fit, unless patience ends before; None where all jobs must be read for that.

    No system has an index of names or payloads: jobs are read in their order, and those that don't fit are left out.
    """
    deadline = time.monotonic() + patience_s
    jobs: list[Job] = []
    looked_at, at = 0, after
    while True:
        found = pages.page(address, queue, state, SLICE, at, newest=newest, now_ms=now_ms)
        if found is None:
            return None
        looked_at += len(found.jobs)
        jobs += (job for job in found.jobs if chosen.fits(job, now_ms))
        if found.next is None or len(jobs) >= limit or time.monotonic() > deadline:
            return Filtered(tuple(jobs), looked_at, found.next)
        at = found.next
