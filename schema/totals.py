"""Totals: the few numbers and names of a whole keyspace that rules need beside a single job.

A monoid: each engine tallies facts where they are read and merges the parts in any order, so Spark partitions and the
local engine come to the same totals. The size depends on the number of queues and kinds of damage, never on the number of jobs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator

from attrs import define, field

SAMPLES = 20
"""How many examples of one thing are kept."""

Label = tuple[str, str]


@define
class Totals:
    """Measures by (measure, label); the label is mostly a queue name, or empty."""

    sums: Counter[Label] = field(factory=Counter)
    maxima: dict[Label, int] = field(factory=dict)
    names: dict[str, set[str]] = field(factory=dict)
    """Registries: measure -> names. Small by nature (queues, types)."""
    samples: dict[Label, list[str]] = field(factory=dict)
    """Examples: measure and label -> at most SAMPLES texts, the smallest ones, so that the choice is the same everywhere."""

    def count(self, measure: str, label: str = "", number: int = 1) -> None:
        """Adds to a sum."""
        self.sums[measure, label] += number

    def maximum(self, measure: str, number: int, label: str = "") -> None:
        """Raises a maximum."""
        self.maxima[measure, label] = max(number, self.maxima.get((measure, label), number))

    def name(self, measure: str, names: Iterable[str]) -> None:
        """Adds names to a registry."""
        self.names.setdefault(measure, set()).update(names)

    def sample(self, measure: str, text: str, label: str = "") -> None:
        """Keeps an example, as long as it is among the smallest SAMPLES."""
        texts = self.samples.setdefault((measure, label), [])
        if text not in texts:
            texts.append(text)
            texts.sort()
            del texts[SAMPLES:]

    def count_and_sample(self, measure: str, text: str, label: str = "") -> None:
        """Counts a case, and keeps it as an example."""
        self.count(measure, label)
        self.sample(measure, text, label)

    def merge(self, other: Totals) -> None:
        """Adds what ``other`` has seen."""
        self.sums.update(other.sums)
        for (measure, label), number in other.maxima.items():
            self.maximum(measure, number, label)
        for measure, names in other.names.items():
            self.name(measure, names)
        for (measure, label), texts in other.samples.items():
            for text in texts:
                self.sample(measure, text, label)

    def labels(self, measure: str) -> Iterator[str]:
        """The labels under which a measure was counted, sorted."""
        return iter(sorted(label for name, label in self.sums if name == measure))

    def to_json(self) -> str:
        """A text that ``from_json`` reads; JSON because it crosses process borders and must never be unpickled."""
        return json.dumps(
            {
                "sums": [[*key, number] for key, number in self.sums.items()],
                "maxima": [[*key, number] for key, number in self.maxima.items()],
                "names": {measure: sorted(names) for measure, names in self.names.items()},
                "samples": [[*key, texts] for key, texts in self.samples.items()],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Totals:
        """The totals behind ``to_json``."""
        raw = json.loads(text)
        return cls(
            sums=Counter({(measure, label): number for measure, label, number in raw["sums"]}),
            maxima={(measure, label): number for measure, label, number in raw["maxima"]},
            names={measure: set(names) for measure, names in raw["names"].items()},
            samples={(measure, label): texts for measure, label, texts in raw["samples"]},
        )
