"""Single task: a keyspace read from one end to the other by one task, with the facts of all jobs on its disk meanwhile.

For what no runner does: a data source's tasks, which only read. Called by the data source and its streams.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator

from attrs import frozen

from ..migrations.engine import silent
from ..migrations.engine.fact_files import BY_JOB, FactFiles
from ..migrations.engine.key_scan import task_count
from ..migrations.engine.runner import InProcess
from ..migrations.fact_reader import FactReader
from ..migrations.source import open_source
from ..migrations.throttle import UNTHROTTLED, Throttle
from ..schema.connection.address import Address
from ..schema.fact import Subject
from ..schema.family import Keyspace


@frozen
class SpilledKeyspace:
    """A keyspace that has been read whole, with its facts on disk."""

    keyspace: Keyspace
    _facts: FactFiles

    def subjects(self) -> Iterator[Subject]:
        """Every job that there are facts about."""
        for bucket in range(self._facts.stated.buckets):
            yield from self._facts.subjects(bucket)


@contextlib.contextmanager
def read_in_one_task(address: Address, now_ms: int | None = None, throttle: Throttle = UNTHROTTLED) -> Iterator[SpilledKeyspace]:
    """Reads a keyspace; its facts are gone after the block. A keyspace without keys has no subjects.

    ``now_ms``: the moment that rules compare with, by default the server's clock or the snapshot's time. Raises ServerError.
    """
    reader, buckets = FactReader(address), task_count(address)
    with tempfile.TemporaryDirectory(prefix="ferryman-") as folder:
        with open_source(address, throttle) as source:
            now = source.clock_ms() if now_ms is None else now_ms
            stated = (fact for batch in source.entries(now) for entry in batch for fact in reader.facts(entry))
            files = BY_JOB.write((fact for fact in stated if fact.job_id is not None), folder, buckets)
        facts = FactFiles.of(files, buckets)
        if reader.close().references:
            facts = facts.with_references(InProcess(), address, folder, silent)
        yield SpilledKeyspace(Keyspace(address.key_family, address.prefix, now, reader.close().totals), facts)
