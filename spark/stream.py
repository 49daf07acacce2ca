"""Streams: a living keyspace as a table that grows, for ``spark.readStream.format("ferryman")``.

    table    rows
    totals   every queue with the number of its jobs in each state, again at each look
    events   new dead letters, and new findings of the audit's rules, when they are told for the first time

Both look again when ``every`` seconds have passed, and a batch is what one look has to say. Its offset is the moment of the
look, so a query goes on from its checkpoint; what the events have told stands in a folder (stream_state.py). A look is one
task's. Called by the data source.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import redis
from attrs import frozen
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ..migrations.throttle import Throttle
from ..schema.connection.address import Address
from ..schema.errors import ServerError
from .poll import TOTALS, events, totals
from .stream_state import BEGINNING, Told
from .tables import batches

T = TypeVar("T")

AT = "at_ms"
"""The one field of an offset: when to look, by the driver's clock."""
RETRY_SECONDS = 0.5
"""Between two attempts to look at a server that is away."""
REFUSALS = (
    redis.exceptions.AuthenticationError,
    redis.exceptions.AuthorizationError,
    redis.exceptions.NoPermissionError,
)
"""What no waiting helps against."""


@frozen
class Look(InputPartition):  # type: ignore[misc]
    """One look: the part of the one task of a batch."""

    last: int
    number: int


@frozen
class Watch:
    """What both streams are told by their options."""

    address: Address
    every_ms: int
    patience: float
    """Seconds for which a look waits for a server that is away."""
    throttle: Throttle

    def patiently(self, look: Callable[[], T]) -> T:
        """Looks, again and again while the server is away. Raises the last ServerError when patience ends."""
        deadline = time.monotonic() + self.patience
        while True:
            try:
                return look()
            except ServerError as error:
                if isinstance(error.__cause__, REFUSALS) or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_SECONDS)


class Stream(DataSourceStreamReader):  # type: ignore[misc]
    """A stream of looks."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {AT: BEGINNING}

    # Spark 4.2 and later would pass more; what takes nothing works with every version.
    def latestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        now_ms = time.time_ns() // 1_000_000
        return {AT: now_ms - now_ms % max(1, self.watch.every_ms)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[Look]:
        return [Look(start[AT], end[AT])] if start != end else []


class TotalsStream(Stream):
    """The table ``totals``. A batch that is read twice is looked at twice."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Look):
            return  # Spark reads no partition at all as one that is none.
        watch = self.watch
        yield from batches(TOTALS, watch.patiently(lambda: list(totals(watch.address, watch.throttle))))


class EventsStream(Stream):
    """The table ``events``. A batch that is read twice is the same."""

    def __init__(self, watch: Watch, state: str, *, silently: bool) -> None:
        super().__init__(watch)
        self._told = Told(Path(state))
        self._silently = silently

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        self._told.begin()
        return super().initialOffset()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Look):
            return
        if self._told.events(partition.number) is None:
            self.watch.patiently(lambda: self._look(partition))
        yield from self._told.events(partition.number) or ()

    def commit(self, end: dict[str, int]) -> None:
        self._told.forget(end[AT])

    def _look(self, look: Look) -> None:
        seen = events(self.watch.address, self.watch.throttle)
        self._told.tell(seen, look.last, look.number, silently=self._silently)
