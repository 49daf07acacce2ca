"""What Prometheus reads from an exposition."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

Samples = dict[tuple[str, ...], float]
"""Name, exchange, queue, state, priority and bound, as far as there are any -> value."""


def samples(text: str) -> Samples:
    """All samples; fails where Prometheus would, and for a series that comes twice."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = (
                sample.name,
                *(sample.labels[name] for name in ("exchange", "queue", "state", "priority", "le") if name in sample.labels),
            )
            assert key not in found
            found[key] = sample.value
    return found
