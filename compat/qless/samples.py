"""Samples of qless keyspaces that are shipped: a healthy one and a damaged one, captured from the original software.

Called by the tests, and by whoever wants to see the family at work without a qless.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...schema.fact import Entry
from ..samples import Sample

SAMPLES: Mapping[str, Sample] = {
    sample.name: sample
    for sample in (
        Sample(__package__, "healthy", prefix="ql", captured_at_ms=1795000000125),
        Sample(__package__, "crashed", prefix="ql", captured_at_ms=1795263775259),
    )
}
"""``healthy``: 92 jobs in all states. ``crashed``: workers killed, hashes evicted, scripts that failed half way: 50 faults."""


def sample_names() -> tuple[str, ...]:
    """The names that ``sample_entries`` knows."""
    return tuple(SAMPLES)


def planted(name: str) -> list[tuple[str, str | None]]:
    """(rule, job id) of every fault planted in a damaged sample. Raises KeyError for an unknown name."""
    return SAMPLES[name].damage()


def sample_entries(name: str) -> Iterator[Entry]:
    """Every key of the sample. Raises KeyError for an unknown name."""
    return SAMPLES[name].entries()
