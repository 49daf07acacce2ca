"""Samples of kue: two keyspaces captured from running kue 0.11.6, shipped so that a demo needs no Node.js.

Called by ``ferryman demo`` and the tests.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..samples import Sample

SAMPLES: Mapping[str, Sample] = {
    sample.name: sample
    for sample in (
        Sample(__package__, "healthy", prefix="q", captured_at_ms=1795262523000),
        Sample(__package__, "crashed", prefix="q", captured_at_ms=1795262676000),
    )
}
"""``healthy``: 65 jobs in all states. ``crashed``: producers and workers killed at every step, 28 kinds of damage."""
