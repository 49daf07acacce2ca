"""Single task: a keyspace read from one end to the other by one task, with the facts of all jobs on its disk meanwhile.

For what can't use Spark's own shuffle: a data source's tasks, which only read. Called by the data source and its streams.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from attrs import frozen

from ..migrations.engine.key_scan import task_count
from ..migrations.fact_reader import FactReader
from ..migrations.source import open_source
from ..migrations.throttle import UNTHROTTLED, Throttle
from ..schema.connection.address import Address
from ..schema.fact import Subject
from ..schema.family import Keyspace
from .spill import Spill


@frozen
class SpilledKeyspace:
    """A keyspace that has been read whole, with its facts on disk."""

    keyspace: Keyspace
    _spill: Spill

    def subjects(self) -> Iterator[Subject]:
        """Every job that there are facts about. Can be asked for once."""
        return self._spill.subjects()


@contextlib.contextmanager
def read_in_one_task(address: Address, now_ms: int | None = None, throttle: Throttle = UNTHROTTLED) -> Iterator[SpilledKeyspace]:
    """Reads a keyspace; its facts are gone after the block. A keyspace without keys has no subjects.

    ``now_ms``: the moment that rules compare with, by default the server's clock or the snapshot's time. Raises ServerError.
    """
    family, reader = address.key_family, FactReader(address)
    tasks = task_count(address)
    with Spill(tasks) as spill, Spill(tasks) as with_references:
        with open_source(address, throttle) as source:
            now = source.clock_ms() if now_ms is None else now_ms
            for batch in source.entries(now):
                for entry in batch:
                    for fact in reader.facts(entry):
                        if fact.job_id is not None:
                            spill.add(fact)
        if reader.close().references:
            for subject in spill.subjects():
                back_references = family.back_references(subject) if family.is_referenced(subject.facts) else ()
                for fact in (*subject.facts, *back_references):
                    with_references.add(fact)
            spill = with_references
        yield SpilledKeyspace(Keyspace(family, address.prefix, now, reader.close().totals), spill)
