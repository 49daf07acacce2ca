"""Audit: the rules of a family, run on every subject of a snapshot. Called by the engine and by frames.py."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator

from attrs import asdict

from ..migrations.engine import Census, Progress, silent
from ..schema.rule import Finding
from .snapshot import Snapshot
from .stage import Batches, Results, closing, run
from .tables import FINDINGS, batches


def findings(snapshot: Snapshot, tasks: int, path: str, progress: Progress = silent) -> Results[Finding]:
    """What all rules say about single jobs, as a table in the folder ``path``; its tails count the jobs."""
    return run(snapshot.subjects(tasks), _checking(snapshot), FINDINGS, path, "checking jobs", progress)


def of_keyspace(snapshot: Snapshot) -> list[Finding]:
    """What there is to say of the source itself, and what all rules say about the keyspace as a whole."""
    keyspace = snapshot.keyspace
    return [*snapshot.remarks, *keyspace.family.keyspace_findings(keyspace)]


def census(found: Results[Finding]) -> Census:
    """How many jobs the rules were run on."""
    total = Census()
    for tail in map(json.loads, found.tails()):
        total.merge(Census(tail["jobs"], Counter(tail["by_state"]), Counter(tail["by_queue"])))
    return total


def _checking(snapshot: Snapshot) -> Callable[[Batches], Batches]:
    read = snapshot.reader()

    def check(rows: Batches) -> Batches:
        counted = Census()

        def found() -> Iterator[Finding]:
            for subject, keyspace in read(rows):
                job = keyspace.family.read(subject, keyspace)
                if job is not None:
                    counted.count(job)
                yield from keyspace.family.findings(subject, keyspace)

        yield from closing(batches(FINDINGS, found()), FINDINGS, lambda: json.dumps(asdict(counted)))

    return check
