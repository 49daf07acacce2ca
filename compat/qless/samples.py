"""Samples of qless keyspaces that are shipped: a healthy one and a damaged one, captured from the original software.

Called by the tests, and by whoever wants to see the family at work without a qless.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..samples import Sample

SAMPLES: Mapping[str, Sample] = {
    sample.name: sample
    for sample in (
        Sample(__package__, "healthy", prefix="ql", captured_at_ms=1795000000125),
        Sample(__package__, "crashed", prefix="ql", captured_at_ms=1795263775259),
    )
}
"""``healthy``: 92 jobs in all states. ``crashed``: workers killed, hashes evicted, scripts that failed half way: 50 faults."""
