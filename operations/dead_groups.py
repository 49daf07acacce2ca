"""Dead groups: failed jobs that failed alike, by queue, reason, task and error, from a bounded look at the newest of each queue.

Of ferryman's own queues each dead letter is asked for the few fields that tell why it died, and for its message only where that
is short; of other families pages of failed jobs are read (``pages.py``). Only reads. Called by the web page.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from ..schema.connection.address import DEFAULT_FAMILY, Address
from ..schema.connection.call import Command
from ..schema.job import Job, State
from ..schema.native.record import decoded_message, task_name
from ..schema.native.scripts.results import upcoming
from ..schema.text import to_text
from . import numbers, pages
from .broker import Broker, open_broker

MOST_READ = 20_000
"""Jobs that one look reads, of all queues together."""
LEAST_EACH = 200
"""Of every queue at least so many are read, the newest."""
MOST_SECONDS = 5.0
CHUNK = 500
SHORT = 32 << 10
"""Bytes of a message that is read for the name of its task."""
LONGEST_ERROR = 160
EXAMPLES = 3

_VARYING = re.compile(r"\d")


@frozen
class Place:
    """What the jobs of a group have in common."""

    queue: str
    reason: str
    task: str
    error: str
    """The beginning of their errors, up to the first number: these differ from job to job."""


@define
class Group:
    """Jobs that failed alike."""

    place: Place
    number: int = 0
    first_ms: int | None = None
    last_ms: int | None = None
    examples: list[str] = field(factory=list)
    """Ids of the newest."""

    def add(self, job_id: str, died_ms: int | None) -> None:
        """Counts one job."""
        self.number += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(job_id)
        if died_ms is not None:
            self.first_ms = died_ms if self.first_ms is None else min(self.first_ms, died_ms)
            self.last_ms = died_ms if self.last_ms is None else max(self.last_ms, died_ms)


@frozen
class DeadGroups:
    """What one look has found."""

    groups: tuple[Group, ...]
    """The largest first."""
    read: int
    total: int
    """Failed jobs of all queues, as their indexes count them."""
    unlisted: tuple[str, ...] = ()
    """Queues of which failed jobs stand in no index."""


Progress = Callable[[int, int], None]


def dead_groups(address: Address, progress: Progress = lambda _read, _total: None) -> DeadGroups:
    """Looks at the newest failed jobs of each queue. Raises ServerError, UsageError."""
    failed = {
        queue: found.number(State.FAILED) + found.number(State.CANCELLED)
        for queue, found in numbers.look(address).items()
        if not isinstance(found, Exception)
    }
    chosen = {queue: number for queue, number in failed.items() if number}
    each = max(LEAST_EACH, MOST_READ // max(1, len(chosen)))
    deadline = time.monotonic() + MOST_SECONDS
    groups: dict[Place, Group] = {}
    read, unlisted = 0, []
    for queue in sorted(chosen):
        found = _native(address, queue, each) if address.family == DEFAULT_FAMILY else _foreign(address, queue, each)
        if found is None:
            unlisted.append(queue)
            continue
        for jobs in found:
            for place, job_id, died_ms in jobs:
                groups.setdefault(place, Group(place)).add(job_id, died_ms)
            read += len(jobs)
            progress(read, sum(chosen.values()))
            if time.monotonic() > deadline:
                break
        if time.monotonic() > deadline:
            break
    ordered = sorted(groups.values(), key=lambda group: (-group.number, group.place.queue, group.place.reason))
    return DeadGroups(tuple(ordered), read, sum(chosen.values()), tuple(unlisted))


Found = Sequence[tuple[Place, str, int | None]]


def common_part(error: str) -> str:
    """The beginning of an error up to what differs from job to job."""
    line = error.strip().partition("\n")[0][:LONGEST_ERROR]
    varying = _VARYING.search(line)
    return line[: varying.start()].rstrip() if varying is not None and varying.start() >= 8 else line


def _native(address: Address, queue: str, most: int) -> Iterator[Found]:
    with open_broker(address) as broker:
        keys, start = broker.scripts.keys(queue), 0
        while start < most:
            end = min(start + CHUNK, most) - 1
            dead = broker.link.run(Command(("ZREVRANGE", keys.dead, start, end, "WITHSCORES"), upcoming))
            if not dead:
                return
            yield _told(broker, queue, dead)
            start += len(dead)


FIELDS = (b"reason", b"error", b"name")


def _told(broker: Broker, queue: str, dead: Sequence[tuple[str, int]]) -> Found:
    keys = broker.scripts.keys(queue)
    fields = broker.link.run_all([Command(("HMGET", keys.job(job_id), *FIELDS), _pairs) for job_id, _ in dead])
    sizes = broker.link.run_all([broker.scripts.message_size(queue, job_id) for job_id, _ in dead])
    short = [job_id for (job_id, _), size in zip(dead, sizes, strict=True) if 0 < size <= SHORT]
    messages = dict(zip(short, broker.link.run_all([broker.scripts.message(queue, job_id) for job_id in short]), strict=True))
    found = []
    for (job_id, died_ms), told in zip(dead, fields, strict=True):
        head = decoded_message(messages.get(job_id, {}))
        task = task_name(head[0]) if head is not None else to_text(told.get(b"name", b""))
        place = Place(queue, to_text(told.get(b"reason", b"")), task, common_part(to_text(told.get(b"error", b""))))
        found.append((place, job_id, died_ms))
    return found


def _pairs(reply: Any) -> Mapping[bytes, bytes]:
    return {name: value for name, value in zip(FIELDS, reply, strict=True) if value is not None}


def _foreign(address: Address, queue: str, most: int) -> Iterator[Found] | None:
    first = pages.page(address, queue, State.FAILED, CHUNK, newest=True)
    return None if first is None else _pages(address, queue, first, most)


def _pages(address: Address, queue: str, found: pages.Page, most: int) -> Iterator[Found]:
    read = 0
    while True:
        yield [(_place(job), job.id, job.finished_at or job.updated_at) for job in found.jobs]
        read += len(found.jobs)
        if found.next is None or read >= most:
            return
        after = pages.page(address, queue, State.FAILED, CHUNK, found.next, newest=True)
        if after is None:
            return
        found = after


def _place(job: Job) -> Place:
    return Place(job.queue, "", job.name, common_part(job.error or ""))
