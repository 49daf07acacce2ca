"""Fact files: the facts of a snapshot that are about single jobs, in buckets by job, with what jobs tell each other.

Written by the tasks that read keys, read by those that work on jobs. Called by snapshot.py and by what reads for it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from attrs import evolve, frozen

from ...schema.connection.address import Address
from ...schema.fact import Fact, Subject, join
from ..fact_reader import FactReader
from . import Progress
from .groups import Grouping, Groups
from .runner import Runner
from .tables import FACTS

WriteFacts = Callable[[Iterable[Fact], FactReader], dict[str, Any]]
"""Writes the facts that a FactReader makes to a file; gives the summary of that reader, with the file's path, as JSON."""


def _job_of(fact: Fact) -> tuple[str, str]:
    return fact.scope, fact.job_id or ""


BY_JOB = Grouping(FACTS, _job_of)


@frozen
class FactWriter:
    """A WriteFacts. A plain value: it travels to executors."""

    folder: str
    buckets: int

    def __call__(self, facts: Iterable[Fact], reader: FactReader) -> dict[str, Any]:
        files = BY_JOB.write(facts, self.folder, self.buckets)
        summary = reader.close()
        summary.facts += files
        return summary.to_json()


@frozen
class FactFiles:
    """The facts about jobs. A plain value: it travels to executors."""

    stated: Groups[Fact]
    told: Groups[Fact]
    """What jobs tell others that refer to them (``KeyFamily.back_references``)."""

    @classmethod
    def of(cls, files: Iterable[str], buckets: int) -> FactFiles:
        """What these files hold, to begin with."""
        return cls(Groups(BY_JOB, tuple(sorted(files)), buckets), Groups(BY_JOB, (), buckets))

    def plus(self, files: Iterable[str]) -> FactFiles:
        """These facts, and those in more files."""
        return evolve(self, stated=self.stated.plus(files))

    def with_references(self, runner: Runner, address: Address, folder: str, progress: Progress) -> FactFiles:
        """These facts, and what jobs tell those that refer to them."""

        def answer(bucket: int) -> str:
            family = address.key_family
            # Few jobs are referred to: of the others no rows need be made.
            numbers = self.stated.numbers(bucket, "role", family.reference_roles)
            asked = (subject for subject in self.subjects(bucket, numbers) if family.is_referenced(subject.facts))
            told = (fact for subject in asked for fact in family.back_references(subject))
            return json.dumps(BY_JOB.write(told, folder, self.stated.buckets))

        answers = runner.run(answer, self.stated.buckets, "joining references", progress)
        return evolve(self, told=self.told.plus(sorted(path for paths in map(json.loads, answers) for path in paths)))

    def subjects(self, bucket: int, numbers: pa.Array | None = None) -> Iterator[Subject]:
        """The jobs of a bucket, always in the same order; a few are in memory. ``numbers``: only those with these."""
        told = self.told.of(bucket) if self.told.files else iter(())
        waiting = next(told, None)
        for each in self.stated.of(bucket, numbers):
            facts = [fact for fact in each if fact.job_id is not None]
            if not facts:
                continue
            name = _order(facts)
            while waiting is not None and _order(waiting) < name:
                waiting = next(told, None)  # nobody has stated anything about this job
            if waiting is not None and _order(waiting) == name:
                facts = [*facts, *waiting]
            yield join(facts)

    def all(self, bucket: int) -> Iterator[Fact]:
        """All facts in a bucket."""
        return self.stated.rows(bucket)


def _order(facts: list[Fact]) -> tuple[int, str, str]:
    return BY_JOB.key(facts[0])
