"""Subjects: the facts of a keyspace in memory, joined by job, with what jobs tell each other.

Pure. Called by whoever reads a keyspace whole: the local engine, detection and repair.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from attrs import define, field

from ..schema.fact import Fact, Subject, join
from ..schema.family import KeyFamily


@define
class SubjectBuilder:
    """The facts about jobs that were read so far, by scope and job id."""

    family: KeyFamily
    _facts: defaultdict[tuple[str, str], list[Fact]] = field(factory=lambda: defaultdict(list))

    def add(self, fact: Fact) -> None:
        """Keeps a fact; one about the keyspace as a whole belongs to no job."""
        if fact.job_id is not None:
            self._facts[fact.scope, fact.job_id].append(fact)

    def subjects(self) -> Iterator[Subject]:
        """Every job that there are facts about, when all of them are in. In an order that depends on nothing but their ids."""
        referenced = filter(self.family.is_referenced, self._facts.values())
        # All are asked before the first answer is added: none has an answer of its own.
        for fact in [fact for facts in referenced for fact in self.family.back_references(join(facts))]:
            if (fact.scope, fact.job_id) in self._facts:
                self.add(fact)
        for name in sorted(self._facts):
            yield join(self._facts[name])
