"""Search: the jobs that a filter fits, a page at a time, by looking at a bounded number of jobs for each page.

No system has an index of names or payloads, so jobs are read from the indexes of their states, in the order of these, and those
that don't fit are left out. A page may so have few jobs, or none, and go on all the same. Only reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from attrs import field, frozen

from ..migrations.counting import count
from ..schema.connection.address import Address
from ..schema.errors import UsageError
from ..schema.job import Job, State
from ..schema.native.keys import DEFAULT_PREFIX
from ..schema.steering import JobFilter
from . import pages

MOST_LOOKED_AT = 20_000
"""Jobs that are read for one page."""

_CURSOR = re.compile(r"([a-z]+):(\d{1,9})-(\d{1,18})\+(\d{1,9}):(.*)", re.DOTALL)


@frozen
class SearchCursor:
    """Where the next page goes on."""

    queue: str
    state: State
    at: pages.Cursor = field(factory=pages.Cursor)
    skipped: int = 0
    """Jobs behind ``at`` that were looked at."""

    @classmethod
    def parse(cls, text: str) -> SearchCursor:
        """The cursor behind ``str``. Raises UsageError."""
        match = _CURSOR.fullmatch(text)
        if match is None or match[1] not in list(State):
            raise UsageError(f"{text!r} is no cursor of a search; give the one that the page before has named")
        return cls(match[5], State(match[1]), pages.Cursor(int(match[2]), int(match[3])), int(match[4]))

    def __str__(self) -> str:
        return f"{self.state}:{self.at}+{self.skipped}:{self.queue}"


@frozen
class SearchPage:
    """Jobs that fit, how many were looked at for them, and where to go on; None: that was all."""

    jobs: tuple[Job, ...]
    looked_at: int
    next: SearchCursor | None


def search(
    address: Address,
    chosen: JobFilter,
    limit: int,
    *,
    queue: str | None = None,
    state: State | None = None,
    after: SearchCursor | None = None,
    newest: bool = False,
    now_ms: int | None = None,
) -> SearchPage | None:
    """Up to ``limit`` jobs that fit, by queue and state; None where all jobs must be read for that.

    What stands in no index is not among them. Raises ServerError naming the address.
    """
    places = _places(address, chosen, queue, state)
    if places is None:
        return None
    jobs: list[Job] = []
    looked_at = 0
    if after is not None:
        places = [place for place in places if place >= (after.queue, list(State).index(after.state))]
    for name, index in places:
        each = list(State)[index]
        is_first = after is not None and (after.queue, after.state) == (name, each)
        at, skipped = (after.at, after.skipped) if is_first and after is not None else (pages.Cursor(), 0)
        while True:
            found = pages.page(address, name, each, pages.SLICE, at, newest=newest, now_ms=now_ms)
            if found is None:
                return None
            for number, job in enumerate(found.jobs[skipped:], skipped + 1):
                looked_at += 1
                if chosen.fits(job, now_ms or 0):
                    jobs.append(job)
                if len(jobs) == limit or looked_at >= MOST_LOOKED_AT:
                    return SearchPage(tuple(jobs), looked_at, SearchCursor(name, each, at, number))
            if found.next is None:
                break
            at, skipped = found.next, 0
    return SearchPage(tuple(jobs), looked_at, None)


def _places(address: Address, chosen: JobFilter, queue: str | None, state: State | None) -> list[tuple[str, int]] | None:
    """The queues and states to look at, these by their number, in their order."""
    numbers = {each: index for index, each in enumerate(State) if each is not State.UNKNOWN}
    if state is State.UNKNOWN:
        return None
    if queue is not None and state is not None:
        return [(queue, numbers[state])]
    counted = count(address)
    if counted is None:
        return None
    live = address.key_family.live(address.prefix, DEFAULT_PREFIX) if chosen.task is not None else None
    found = []
    for status in counted[1]:
        if queue not in (None, status.queue):
            continue
        # The queue's name is that of its jobs, where these have none of their own.
        if live is not None and not live.has_names and not live.carries_messages and status.queue != chosen.task:
            continue
        found += [(status.queue, number) for each, number in numbers.items() if state in (None, each)]
    return sorted(found)


def scanned(jobs: Iterator[Job], chosen: JobFilter, limit: int, now_ms: int) -> list[Job]:
    """Those of all jobs that fit, at most ``limit``, 0: all of them."""
    return list(islice((job for job in jobs if chosen.fits(job, now_ms)), limit or None))
