"""Job frame: a DataFrame of jobs that is written: which columns it must have, and its rows as jobs.

Called by what writes them: sink.py and publish.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from ..migrations.engine.tables import JOBS
from ..schema.errors import UsageError
from ..schema.job import Job

REQUIRED = ("id", "queue", "name", "state")


def jobs_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Job]:
    """The jobs of the rows. Raises UsageError for a null where every job needs a value."""
    for batch in batches:
        for name in REQUIRED:
            if batch.column(name).null_count:
                raise UsageError(f"column {name!r} has a null; every job needs one")
        yield from JOBS.rows(batch)


def check_schema(given: pa.Schema) -> None:
    """Raises UsageError that names the column that is missing, unknown or of another type."""
    for name in REQUIRED:
        if name not in given.names:
            raise UsageError(f"column {name!r} is missing; jobs need at least {', '.join(REQUIRED)}")
    for column in given:
        if column.name not in JOBS.arrow.names:
            raise UsageError(f"there is no column {column.name!r} in the table jobs; drop it")
        wanted = next(each for each in JOBS.columns if each.name == column.name)
        if column.type != wanted.arrow:
            raise UsageError(f"column {column.name!r} must be {wanted.ddl}; cast it")
