"""Pages: the jobs of a queue that are in one state, a page at a time, for what the page costs, however many jobs there are.

An index tells which jobs come next (``KeyFamily.state_indexes``), and then each of them is read by all keys that speak of it, at
one moment (``migrations/related_jobs.py``). A job that stands in no index is on no page: that is what audits are for. Only
reads. Called by ``ferryman jobs``, the web page and the Spark data source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import redis
from attrs import field, frozen

from ..migrations.atomic_read import open_reader
from ..migrations.counting import SERVERS, answer, count
from ..migrations.probes import clock_ms
from ..migrations.probes import size as database_size
from ..migrations.related_jobs import RelatedReader
from ..migrations.throttle import UNTHROTTLED, Throttle
from ..schema.connection.address import Address
from ..schema.connection.connect import open_client
from ..schema.connection.pipeline import PipelineConnection, open_pipeline, pairs
from ..schema.errors import UsageError
from ..schema.fact import Entry, Fact, Subject
from ..schema.family import Keyspace
from ..schema.job import Job, State
from ..schema.state_index import StateIndex

SLICE = 500
"""Most items of an index that are looked at in one round."""
SIZE_OF = {"zset": "ZCARD", "set": "SCARD", "list": "LLEN"}
"""Redis type of an index -> the command that counts its items."""
PAGE_COST = 5
"""How many keys are read whole for what one job of a page costs, about."""
MOST_LOOKED_AT = 20_000
"""Items of indexes after which a page ends, full or not: those of other states and queues, which it leaves out, count too."""


@frozen
class Cursor:
    """Where the next page begins."""

    index: int = 0
    """Which of the indexes."""
    offset: int = 0
    """Items of it that are left out; for a set, the cursor of SSCAN."""

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """The cursor behind ``str``. Raises UsageError."""
        index, _, offset = text.partition("-")
        if not (index.isascii() and index.isdigit() and offset.isascii() and offset.isdigit()):
            raise UsageError(f"{text!r} is no cursor; give the one that the page before has named")
        return cls(int(index), int(offset))

    def __str__(self) -> str:
        return f"{self.index}-{self.offset}"


@frozen
class Page:
    """Some jobs, and where the next ones are; None: there are no more."""

    jobs: tuple[Job, ...]
    next: Cursor | None = field(default=None)


def page(
    address: Address,
    queue: str,
    state: State,
    limit: int,
    after: Cursor = Cursor(),
    *,
    newest: bool = False,
    now_ms: int | None = None,
    throttle: Throttle = UNTHROTTLED,
    with_ranks: bool = False,
) -> Page | None:
    """Up to ``limit`` jobs in the order of their runs, or from the other end; None where all jobs must be read for that.

    Positions shift while jobs come and go, so a job may be on two pages in a row, or on none, as in any such listing.
    ``now_ms``: the server's clock if none is given. ``with_ranks``: jobs have their positions in the queue. Raises ServerError
    naming the address.
    """
    if address.kind not in SERVERS:
        return None
    query = address.key_family.state_indexes(address.prefix, queue, state)
    if query is None:
        return None
    with open_client(address) as client, open_pipeline(client) as pipe, open_reader(address, throttle) as reader:
        now_ms = clock_ms(client) if now_ms is None else now_ms
        indexes = answer(pipe, query)
        related = RelatedReader(reader, Keyspace(address.key_family, address.prefix, now_ms), with_ranks=with_ranks)
        pages = _Pages(pipe, related, queue, state, newest)
        return pages.read(indexes, limit, after)


def is_most_of_all(address: Address, queue: str, state: State) -> bool | None:
    """Whether reading all jobs of an address costs less than those of a queue in a state page by page; None as ``page``.

    A job of a page costs two dozen commands, a key three where all are read. Who may not ask how many keys there are reads pages.
    Raises ServerError naming the address.
    """
    query = address.key_family.state_indexes(address.prefix, queue, state) if address.kind in SERVERS else None
    if query is None:
        return None
    with open_client(address) as client, open_pipeline(client) as pipe:
        items = sum(int(pipe.ask(SIZE_OF[index.redis_type], index.key)) for index in answer(pipe, query))
        try:
            return items * PAGE_COST > database_size(client)
        except redis.exceptions.NoPermissionError:
            return False


@frozen
class _Pages:
    """What pages of one listing have in common."""

    pipe: PipelineConnection
    related: RelatedReader
    queue: str
    state: State
    newest: bool

    def read(self, indexes: Sequence[StateIndex], limit: int, after: Cursor) -> Page:
        """Goes on where a cursor says until the page is full."""
        if self.newest:
            indexes = indexes[::-1]
        jobs: list[Job] = []
        looked_at, at = 0, after
        while at.index < len(indexes) and len(jobs) < limit and looked_at < MOST_LOOKED_AT:
            entries, offset = self._slice(indexes[at.index], at.offset, min(SLICE, limit - len(jobs)))
            looked_at += len(entries)
            jobs += self._jobs(entries, has_records=indexes[at.index].has_records)
            at = Cursor(at.index, offset) if offset else Cursor(at.index + 1)
        return Page(tuple(jobs), at if at.index < len(indexes) else None)

    def _slice(self, index: StateIndex, offset: int, number: int) -> tuple[list[Entry], int]:
        """The next items of an index, each as an entry of its own, and the offset behind them; 0 at the end."""
        if index.redis_type == "set":
            cursor, members = self.pipe.ask("SSCAN", index.key, offset, "COUNT", number)
            return [Entry(index.key, "set", [member]) for member in members], int(cursor)
        from_tail = index.runs_from_tail != self.newest
        items = self._items(index, offset, offset + number - 1, from_tail=from_tail)
        size = int(self.pipe.ask(SIZE_OF[index.redis_type], index.key))
        entries = []
        for at, item in enumerate(items, offset):
            entries.append(Entry(index.key, index.redis_type, [item], offset=max(size - 1 - at, 0) if from_tail else at))
        return entries, offset + number if len(items) == number else 0

    def _items(self, index: StateIndex, first: int, last: int, *, from_tail: bool) -> list[Any]:
        if index.redis_type == "zset":
            reply = self.pipe.ask("ZREVRANGE" if from_tail else "ZRANGE", index.key, first, last, "WITHSCORES")
            return [(member, float(score)) for member, score in pairs(reply)]
        if from_tail:
            return list(reversed(self.pipe.ask("LRANGE", index.key, -1 - last, -1 - first)))
        return list(self.pipe.ask("LRANGE", index.key, first, last))

    def _jobs(self, entries: Sequence[Entry], *, has_records: bool) -> Iterator[Job]:
        """The jobs that these items name, in their order, without those that are elsewhere by now."""
        related, family, prefix = self.related, self.related.keyspace.family, self.related.keyspace.prefix
        named = [_subject(family.facts(entry, prefix)) for entry in entries]
        subjects = [subject for subject in named if subject is not None]
        if has_records:
            keyspace = related.with_totals(subjects)
        else:
            read = related.read(subjects)
            subjects, keyspace = list(read.subjects), read.keyspace
        for subject in subjects:
            job = family.read(subject, keyspace)
            if job is not None and job.state is self.state and job.queue == self.queue:
                yield job


def _subject(facts: Iterator[Fact]) -> Subject | None:
    """The job that an item of an index names; None for an item that names none."""
    found = [fact for fact in facts if fact.job_id is not None]
    return Subject(found[0].job_id or "", found[0].scope, tuple(found)) if found else None


@frozen
class Head:
    """The first jobs of a listing, and how many more there are."""

    jobs: tuple[Job, ...]
    more: int


def head(address: Address, limit: int, queue: str | None = None, state: State | None = None, *, now_ms: int) -> Head | None:
    """The first jobs by queue and state, of one queue and in one state if they are given; None where all must be read for that.

    Damaged jobs that stand in no index are not among them. Raises ServerError.
    """
    counted = None if state is State.UNKNOWN else count(address, now_ms)
    if counted is None or not counted[1]:  # who reads all finds out what is there instead
        return None
    jobs: list[Job] = []
    total = 0
    for status in counted[1]:
        if queue not in (None, status.queue):
            continue
        for each in State if state is None else (state,):
            if each is State.UNKNOWN:
                continue
            total += status.states[each]
            if len(jobs) < limit:
                found = page(address, status.queue, each, limit - len(jobs), now_ms=now_ms)
                if found is None:
                    return None
                jobs += found.jobs
    return Head(tuple(jobs), max(0, total - len(jobs)))
