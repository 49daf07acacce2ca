"""Read limits: what Spark 4.2 and later ask of a stream that lets a micro-batch have only so many rows (admission control).

Earlier versions have none of it: there ``HAS_READ_LIMITS`` is false, and nothing else of this is used. Called by stream.py.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

HAS_READ_LIMITS = find_spec("pyspark.sql.streaming.datasource") is not None

AvailableNow: Any = object
"""The base of a stream that a query with the trigger ``availableNow`` reads to the end of what there is when it begins."""

if HAS_READ_LIMITS:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

    AvailableNow = SupportsTriggerAvailableNow


def read_limit(most_rows: int | None) -> Any:
    """Spark's value for so many rows; None: for all."""
    return ReadAllAvailable() if most_rows is None else ReadMaxRows(most_rows)


def most_rows_of(limit: Any) -> int | None:
    """How many rows a limit of Spark's allows; None: all there are."""
    return limit.max_rows if HAS_READ_LIMITS and isinstance(limit, ReadMaxRows) else None
