"""Past: what the history of a queue tells, as charts: depths, throughput, waits and runs. Part of the page of a queue."""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from ...migrations.probes import clock_ms
from ...operations.history import HOUR_MS, Series, has_days, history
from ...schema.connection.address import DEFAULT_FAMILY
from ...schema.connection.connect import open_client
from ...schema.day import DAY_MS
from ...schema.errors import UsageError
from ...schema.histogram import BUCKETS, Histogram, bound_ms
from ...schema.text import plural
from .charts import Chart, Line, histogram, over_time
from .render import age, number
from .view import View

SPANS: Mapping[str, int] = {"2 hours": 2 * HOUR_MS, "12 hours": 12 * HOUR_MS, "5 days": 5 * DAY_MS, "14 days": 14 * DAY_MS}
DAYS: Mapping[str, int] = {"14 days": 14 * DAY_MS, "90 days": 90 * DAY_MS}
"""The same where the system itself keeps days."""
DEPTHS = {"waiting": "waiting", "held": "active", "scheduled": "scheduled", "dead": "failed"}
"""Depth in the history -> the state that it is."""
RATES = {"published": "scheduled", "acked": "active", "dead": "failed"}
BY_DAY = {"delivered": "scheduled", "acked": "active", "dead": "failed"}
"""Counter -> the style of its line."""


@frozen
class Past:
    """The charts of a queue."""

    span: str
    spans: tuple[str, ...]
    """What can be chosen, the first by default."""
    charts: tuple[Chart, ...]
    note: str


def past(view: View, queue: str) -> Past | None:
    """The charts; None in a family that keeps no history. Raises UsageError for a span that is not offered."""
    if has_days(view.address):
        spans = DAYS
    elif view.address.family == DEFAULT_FAMILY:
        spans = SPANS
    else:
        return None
    span = view.get("span") or next(iter(spans))
    if span not in spans:
        raise UsageError(f"the history is shown for {', '.join(spans)}; not for {span!r}")
    with open_client(view.address) as client:
        now_ms = clock_ms(client)
    series = history(view.address, queue, now_ms - spans[span], now_ms)
    if not series.is_kept and not any(point.counts for point in series.points):
        return Past(span, tuple(spans), (), series.note)
    numbers = (_depths(series), _rates(series)) if series.has_depths else (_by_day(series),)
    return Past(span, tuple(spans), (*numbers, _times("Waits", series.wait, "waiting"), _runs(series)), series.note)


def _depths(series: Series) -> Chart:
    lines = [
        Line(state, state, [_known(point.depths, name) for point in series.points], is_area=state == "waiting")
        for name, state in DEPTHS.items()
    ]
    return over_time("Depth", [point.start_ms for point in series.points], series.step_ms, lines)


def _known(depths: Mapping[str, int], name: str) -> float | None:
    return float(depths.get(name, 0)) if depths else None


def _rates(series: Series) -> Chart:
    # Of a minute that is not over yet nobody knows the rate.
    points = [point for point in series.points if not point.partial]
    lines = [Line(name, style, [60 * point.rate(name) for point in points]) for name, style in RATES.items()]
    return over_time("Throughput, jobs a minute", [point.start_ms for point in points], series.step_ms, lines)


def _by_day(series: Series) -> Chart:
    lines = [Line(name, style, [float(point.counts.get(name, 0)) for point in series.points]) for name, style in BY_DAY.items()]
    return over_time("Jobs a day", [point.start_ms for point in series.points], series.step_ms, lines)


def _runs(series: Series) -> Chart:
    return _times("Runs", series.run, "active")


def _times(title: str, times: Histogram, style: str) -> Chart:
    quantiles = [f"{name} {age(times.quantile_ms(share))}" for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))]
    jobs = f"{number(times.count)} {plural(times.count, 'job')}"
    summary = f"{', '.join(quantiles)} of {jobs}" if times.count else "no job in this time"
    return histogram(title, [bound_ms(at) for at in range(BUCKETS)], times.counts, style, summary)
