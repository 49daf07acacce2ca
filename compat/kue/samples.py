"""Samples of kue: two keyspaces captured from running kue 0.11.6, shipped so that a demo needs no Node.js.

Called by ``ferryman demo`` and the tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...schema.fact import Entry
from ..samples import Sample

SAMPLES: Mapping[str, Sample] = {
    sample.name: sample
    for sample in (
        Sample(__package__, "healthy", prefix="q", captured_at_ms=1795262523000),
        Sample(__package__, "crashed", prefix="q", captured_at_ms=1795262676000),
    )
}
"""``healthy``: 65 jobs in all states. ``crashed``: producers and workers killed at every step, 28 kinds of damage."""


def sample_names() -> tuple[str, ...]:
    """The names that ``sample_entries`` knows."""
    return tuple(SAMPLES)


def planted(name: str) -> list[tuple[str, str | None]]:
    """(rule, job id) of every fault planted in a damaged sample. Raises KeyError for an unknown name."""
    return SAMPLES[name].damage()


def sample_entries(name: str) -> Iterator[Entry]:
    """Every key of the sample. Raises KeyError for an unknown name."""
    return SAMPLES[name].entries()
