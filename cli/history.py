"""``ferryman history``: what a queue has done over time, as a table or JSON. Only reads."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import click

from ..operations.history import Series, history, of_times
from ..schema.connection.address import Address
from ..schema.histogram import Histogram
from .duration import DURATION
from .options import address_argument, output_option
from .output import Output
from .status import Status

SHOWN = ("published", "delivered", "acked", "dead")
DEPTHS = ("waiting", "scheduled", "held", "dead")


@click.command()
@address_argument()
@click.argument("queue")
@click.option("--last", type=DURATION, default="1h", show_default=True, help="How far back, as 90m, 24h or 7d.")
@click.option("--step", type=DURATION, help="How long each line is, as 10m; what fits --last if left out.")
@output_option
def command(url: Address, queue: str, last: int, step: int | None, output: Output) -> Status:
    """Show a queue's rates, depths, waits and run times over time.

    The server keeps them, whoever looks: by the minute for 2 hours of traffic, by ten minutes for 12 hours, by the hour for 14
    days. Each line has how many messages a second were published, delivered, acked and given up, how many waited, were scheduled,
    held and dead at its end, and the median and the 95th percentile of how long they waited and ran. Times are UTC.
    Of qless its own statistics are shown, by the day; the other systems keep none.

    \b
    Examples:
      ferryman history ferryman://localhost:6379/0 mail
      ferryman history ferryman://localhost:6379/0 mail --last 7d --step 6h --format json
    """
    now_ms = int(time.time() * 1000)
    series = history(url, queue, max(0, now_ms - last), now_ms, step)
    if output.json:
        for point in series.points:
            output.line({"queue": queue, **point.to_dict()})
    elif series.points:
        _table(series, output)
    if series.note:
        output.note(f"ferryman: {series.note}")
    return Status.FINE


def _table(series: Series, output: Output) -> None:
    shown = [name for name in SHOWN if not series.keeps or name in series.keeps]
    depth_names = DEPTHS if series.has_depths else ()
    # What is known by the day only is counted: nobody knows how it was spread.
    columns = ["time", *((f"{name}/s" for name in shown) if series.has_depths else shown), *depth_names]
    times = ["wait p50", "wait p95", "run p50", "run p95"]
    rows = []
    for point in series.points:
        rates = [f"{point.rate(name):.4g}" if series.has_depths else point.counts.get(name, 0) for name in shown]
        depths = [point.depths.get(name) for name in depth_names]
        rows.append([_clock(point.start_ms), *rates, *depths, *_quantiles(point.wait), *_quantiles(point.run)])
    right = {*columns[1:], *times}
    spare = ["scheduled", "wait p50", "run p50", "dead/s", "delivered/s"]
    output.table(f"queue {series.queue}", [*columns, *times], rows, right=right, spare=spare)
    totals = ", ".join(f"{series.total(name)} {name}" for name in shown)
    output.say(f"{totals}; waits {_told(series.wait)}; runs {_told(series.run)}")


def _clock(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M}"


def _quantiles(histogram: Histogram) -> list[str]:
    found = of_times(histogram)
    return [_duration(found[name]) for name in ("p50", "p95")]


def _told(histogram: Histogram) -> str:
    found = of_times(histogram)
    if not found["count"]:
        return "unknown"
    return ", ".join(f"{name} {_duration(found[name])}" for name in ("p50", "p95", "p99"))


def _duration(ms: float | None) -> str:
    """A length of time for people; nothing for None."""
    if ms is None:
        return ""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= length:
            return f"{ms / length:.3g} {unit}"
    return f"{ms:.3g} ms"
