"""Streams: a living keyspace as a table that grows, for ``spark.readStream.format("ferryman")``.

    table    rows
    totals   every queue with the number of its jobs in each state, again at each poll
    events   new dead letters, and new findings of the audit's rules, when they are reported for the first time

Both poll again when ``every`` seconds have passed, and a batch is what one poll has found. Its offset is the moment of the poll,
so a query goes on from its checkpoint; what the events have reported is in a folder (stream_state.py). A poll is one task's. With
a limit of rows, a batch of events is a part of what a poll has found, and the next one goes on there before it polls again: its
offset also tells how many of them have been given out.
Called by the data source.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import redis
from attrs import frozen
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ..migrations.engine.storage import is_url
from ..migrations.engine.tables import batches
from ..migrations.throttle import Throttle
from ..schema.connection.address import Address
from ..schema.errors import ServerError, UsageError
from .poll import TOTALS, events, totals
from .read_limits import AvailableNow, most_rows_of, read_limit
from .stream_state import BEGINNING, StreamState

T = TypeVar("T")

AT = "at_ms"
"""The field of an offset: when to poll, by the driver's clock."""
ROWS = "rows"
"""The field of an offset within a poll: how many of its rows come before; without it, all do."""
RETRY_SECONDS = 0.5
"""Between two attempts to poll a server that is away."""
REFUSALS = (
    redis.exceptions.AuthenticationError,
    redis.exceptions.AuthorizationError,
    redis.exceptions.NoPermissionError,
)
"""What no waiting helps against."""


@frozen
class PollPartition(InputPartition):  # type: ignore[misc]
    """One poll: the partition of the one task of a batch."""

    last: int
    number: int
    first: int = 0
    """Index of the first row that the batch has."""
    until: int | None = None
    """Index of the row that it has no more; None: all that there are."""


@frozen
class PollOptions:
    """What the options of both streams say."""

    address: Address
    every_ms: int
    patience_s: float
    """Seconds for which a poll waits for a server that is away."""
    throttle: Throttle

    def retry(self, poll: Callable[[], T]) -> T:
        """Polls, again and again while the server is away. Raises the last ServerError when that takes too long."""
        deadline = time.monotonic() + self.patience_s
        while True:
            try:
                return poll()
            except ServerError as error:
                if isinstance(error.__cause__, REFUSALS) or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_SECONDS)


class Stream(DataSourceStreamReader):  # type: ignore[misc]
    """A stream of polls."""

    def __init__(self, options: PollOptions) -> None:
        self.options = options

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {AT: BEGINNING}

    # Spark 4.2 and later would pass more; what takes nothing works with every version.
    def latestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {AT: self._due()}

    def _due(self) -> int:
        """The moment of the next poll, or of the last one if it is too early for another."""
        now_ms = time.time_ns() // 1_000_000
        return now_ms - now_ms % max(1, self.options.every_ms)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[PollPartition]:
        return [PollPartition(start[AT], end[AT])] if start != end else []


class TotalsStream(Stream):
    """The table ``totals``. A batch that is read twice is polled twice."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, PollPartition):
            return  # Spark reads no partition at all as one that is none.
        options = self.options
        yield from batches(TOTALS, options.retry(lambda: list(totals(options.address, options.throttle))))


class EventsStream(Stream, AvailableNow):  # type: ignore[misc]
    """The table ``events``. A batch that is read twice is the same."""

    def __init__(self, options: PollOptions, state: str, *, silently: bool, most_rows: int | None = None) -> None:
        super().__init__(options)
        if is_url(state):
            raise UsageError(f"option 'state' must be a path that driver and executors share, not {state.partition('://')[0]}://")
        self._state = StreamState(Path(state))
        self._silently = silently
        self._most_rows = most_rows
        self._target: int | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        self._state.begin()
        return super().initialOffset()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802 - Spark's name
        return read_limit(self._most_rows)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._due()

    # Spark before 4.2 passes nothing.
    def latestOffset(self, start: dict[str, int] | None = None, limit: Any = None) -> dict[str, int]:  # noqa: N802
        due, most = self._due() if self._target is None else self._target, most_rows_of(limit)
        if start is None:
            return {AT: due}
        last, given = start[AT], start.get(ROWS)
        if given is not None and (self._state.count(last) or 0) > given:
            return _offset(last, None if most is None else given + most)
        return start if last >= due else _offset(due, most)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[PollPartition]:
        if start == end:
            return []
        first = start.get(ROWS, 0) if start[AT] == end[AT] else 0
        return [PollPartition(start[AT], end[AT], first, end.get(ROWS))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, PollPartition):
            return
        if self._state.count(partition.number) is None:
            self.options.retry(lambda: self._poll(partition))
        yield from self._state.events(partition.number, partition.first, partition.until)

    def commit(self, end: dict[str, int]) -> None:
        self._state.prune(end[AT])

    def _poll(self, poll: PollPartition) -> None:
        seen = events(self.options.address, self.options.throttle)
        self._state.record(seen, poll.last, poll.number, silently=self._silently)


def _offset(at_ms: int, rows: int | None) -> dict[str, int]:
    return {AT: at_ms} if rows is None else {AT: at_ms, ROWS: rows}
