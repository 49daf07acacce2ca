"""History: rates, depths, waits and runs of a queue over time, as the server has kept them.

Called by the web page and ``ferryman history``.

Ferryman's own queues keep slots of one minute for 2 hours, of ten for 12 hours, and of an hour for 14 days, whoever looks. A
few commands, however long the time; only reads. Of qless its own statistics are read, which it keeps by the day; the other
systems keep none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import field, frozen

from ..migrations.counting import SERVERS, answer
from ..migrations.probes import clock_ms
from ..schema.connection.address import DEFAULT_FAMILY, Address, Kind
from ..schema.connection.call import Command
from ..schema.connection.connect import open_client
from ..schema.connection.pipeline import open_pipeline
from ..schema.day import DAY_MS, Day
from ..schema.errors import UsageError
from ..schema.histogram import NO_TIMES, Histogram, Times
from ..schema.native.scripts.history import STEPS, OpenSlot, Slot
from ..schema.native.scripts.results import COUNTERS, Size
from ..schema.text import to_bytes, to_text
from .broker import Broker, open_broker
from .numbers import patience

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
MOST_POINTS = 2000
KEPT_BY_DAY = ("delivered", "acked", "reclaimed", "dead")
BY_DAY = (
    "qless counts by the day, UTC: delivered are its pops, acked its completed jobs, reclaimed lost locks, dead failures; "
    "times are those of its cells of whole seconds, minutes, hours and days"
)
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


@frozen
class Point:
    """What happened from ``start_ms`` on, for ``step_ms``, and the depths at the end of that."""

    start_ms: int
    step_ms: int
    counts: Mapping[str, int]
    """How often each of ``COUNTERS`` happened; only those that did."""
    depths: Mapping[str, int]
    """Jobs by place (``waiting``, due ones included, ``scheduled``, ``held``, ``dead``); empty where that is not known."""
    wait: Histogram = NO_TIMES
    """From the publish, or the due time, to the first delivery."""
    run: Histogram = NO_TIMES
    """From a delivery to its ack or reject."""
    partial: bool = False
    """Whether its time is not over yet."""

    def rate(self, counter: str) -> float:
        """How often a second."""
        return self.counts.get(counter, 0) * 1000 / self.step_ms

    def to_dict(self) -> dict[str, Any]:
        """For JSON. Times in ms; quantiles are None where there was no job."""
        return {
            "start_ms": self.start_ms,
            "step_ms": self.step_ms,
            "partial": self.partial,
            "counts": dict(self.counts),
            "rates": {name: round(self.rate(name), 4) for name in self.counts},
            "depths": dict(self.depths),
            "wait_ms": of_times(self.wait),
            "run_ms": of_times(self.run),
        }


@frozen
class Series:
    """A queue's history in equal steps, the oldest first, without gaps: a step in which nothing happened is there, too."""

    queue: str
    step_ms: int
    points: Sequence[Point]
    is_kept: bool = True
    """False where the queue keeps no history: it was switched off, or its system has none."""
    note: str = ""
    """What readers should know: whose numbers these are, and what is missing. For people."""
    keeps: Sequence[str] = field(factory=tuple)
    """The counters that are known here."""
    has_depths: bool = True
    """False where only counts and times are known, by the day."""

    @property
    def wait(self) -> Histogram:
        """All waits together."""
        return sum((point.wait for point in self.points), NO_TIMES)

    @property
    def run(self) -> Histogram:
        """All runs together."""
        return sum((point.run for point in self.points), NO_TIMES)

    def total(self, counter: str) -> int:
        """How often in all steps together."""
        return sum(point.counts.get(counter, 0) for point in self.points)


def of_times(histogram: Histogram) -> dict[str, float | int | None]:
    """Count, mean and quantiles of a histogram, ms, for JSON."""
    quantiles = {name: histogram.quantile_ms(share) for name, share in QUANTILES.items()}
    rounded = {name: None if each is None else round(each, 1) for name, each in quantiles.items()}
    mean = histogram.mean_ms
    return {"count": histogram.count, "mean": None if mean is None else round(mean, 1), **rounded}


def history(address: Address, queue: str, since_ms: int, until_ms: int, step: int | None = None) -> Series:
    """A queue's history between two times, Unix ms, in steps of ``step`` ms (whole minutes; None: one that fits).

    Steps begin at multiples of their length, in UTC. They are longer than ``step`` where the server has kept longer ones only
    (``Series.step_ms``): what is older than 2 hours of traffic by ten minutes, than 12 hours by the hour.
    Raises UsageError for a time or a step that can't be, for a queue that does not exist, and for snapshot files;
    ServerError naming the address.
    """
    step = fitting_step(since_ms, until_ms) if step is None else step
    _check(since_ms, until_ms, step)
    if address.kind is Kind.RDB:
        raise UsageError("a snapshot has no history that can be asked for; give the URL of a server")
    if has_days(address):
        return _history_by_day(address, queue, since_ms, until_ms, step)
    if address.family != DEFAULT_FAMILY:
        note = f"of {address.family} no history is read; ferryman metrics and Prometheus keep one of any system's queues"
        return Series(queue, step, (), is_kept=False, note=note)
    with open_broker(address, **patience(address)) as broker:
        return native_history(broker, queue, since_ms, until_ms, step)


def has_days(address: Address) -> bool:
    """Whether the system itself keeps what a queue did on each day."""
    return address.kind in SERVERS and address.key_family.days(address.prefix, "", ()) is not None


def _history_by_day(address: Address, queue: str, since_ms: int, until_ms: int, step: int) -> Series:
    step = DAY_MS * -(-step // DAY_MS)
    first_ms = since_ms - since_ms % step
    starts_ms = range(first_ms, until_ms, DAY_MS)
    if len(starts_ms) > MOST_POINTS:
        raise UsageError(f"at most {MOST_POINTS} days are read at once: choose a shorter time")
    with open_client(address, **patience(address)) as client, open_pipeline(client) as pipe:
        now_ms = clock_ms(client)
        query = address.key_family.days(address.prefix, queue, starts_ms)
        days = answer(pipe, query) if query is not None else ()
        names = address.key_family.queue_list(address.prefix)
        if not any(day.counts for day in days) and names is not None and to_bytes(queue) not in pipe.ask(*names):
            raise UsageError(f"there is no queue {queue!r}")
    points = [
        _point_of_days([day for day in days if start <= day.start_ms < start + step], start, step, start + step > now_ms)
        for start in range(first_ms, until_ms, step)
    ]
    return Series(queue, step, points, note=BY_DAY, keeps=KEPT_BY_DAY, has_depths=False)


def _point_of_days(days: Sequence[Day], start_ms: int, step: int, partial: bool) -> Point:
    counts: Counter[str] = Counter()
    for day in days:
        counts.update(day.counts)
    wait, run = (sum((getattr(day.times, name) for day in days), NO_TIMES) for name in ("wait", "run"))
    return Point(start_ms, step, counts, {}, wait, run, partial)


def fitting_step(since_ms: int, until_ms: int) -> int:
    """The step, ms, in which this time has at most some 120 points and no finer ones than are kept for it."""
    span = until_ms - since_ms
    if span <= 2 * HOUR_MS:
        return MINUTE_MS
    if span <= 12 * HOUR_MS:
        return 10 * MINUTE_MS
    return HOUR_MS if span <= 5 * DAY_MS else 6 * HOUR_MS if span <= 14 * DAY_MS else DAY_MS


def _check(since_ms: int, until_ms: int, step: int) -> None:
    if step < MINUTE_MS or step % MINUTE_MS:
        raise UsageError(f"a history has steps of whole minutes, not of {step / 1000:g} s")
    if since_ms < 0 or until_ms <= since_ms:
        raise UsageError("a history must begin before it ends: give a time that is earlier")
    if (until_ms - since_ms) / step > MOST_POINTS:
        raise UsageError(f"that would be more than {MOST_POINTS} steps: choose longer ones, or a shorter time")


def native_history(broker: Broker, queue: str, since_ms: int, until_ms: int, step: int) -> Series:
    """``history`` of a queue of ferryman's own, over a connection that is open."""
    scripts, link = broker.scripts, broker.link
    asked: list[Any] = [scripts.size(queue), scripts.counters(queue), scripts.times(queue), scripts.open_slots(queue)]
    asked.append(Command(("HGET", scripts.keys(queue).meta, "history"), lambda raw: to_text(raw or b"")))
    size, counters, times, opened, setting = link.run_all(asked)
    if not size.exists:
        raise UsageError(f"there is no queue {queue!r}")
    # From two hours earlier on: depths of then may have held, and no longer slot reaches into what shorter ones tell.
    span_ms = max(0, size.now - since_ms) + 2 * HOUR_MS
    limits = {minutes: min(kept, span_ms // (minutes * MINUTE_MS) + 1) for minutes, kept in STEPS.items()}
    closed = link.run_all([scripts.slots(queue, minutes, limit) for minutes, limit in limits.items()])
    slots = [*merged(dict(zip(limits, closed, strict=True)), limits), *_open(opened, counters, times, size)]
    until_ms = max(since_ms + 1, min(until_ms, size.now + 1))
    coarsest = max((slot.minutes for slot in slots if since_ms <= slot.end_ms and slot.began_ms < until_ms), default=1)
    step = coarsest * MINUTE_MS * -(-step // (coarsest * MINUTE_MS))
    points = _points(slots, since_ms, until_ms, step, size.now)
    is_kept = setting != "off"
    note = "" if is_kept else f"queue {queue} keeps no history: who declared it connects with history=false"
    return Series(queue, step, points, is_kept, note, COUNTERS)


def _open(opened: Mapping[int, OpenSlot], counters: Mapping[str, int], times: Times, size: Size) -> list[Slot]:
    """What has happened since the last closed minute: all of it in the minute that is open."""
    if 1 not in opened:
        return []
    slot = opened[1]
    happened = {name: now - slot.counters.get(name, 0) for name, now in counters.items()}
    if min(happened.values()) < 0:
        happened = dict(counters)
    depths = {"waiting": size.waiting, "scheduled": size.scheduled, "held": size.held, "dead": size.dead}
    return [Slot(slot.began_ms, 1, depths, happened, times.since(slot.times))]


def merged(by_minutes: Mapping[int, Sequence[Slot]], limits: Mapping[int, int]) -> list[Slot]:
    """The slots of all lengths as one sequence, the oldest first: of each time the finest. ``limits``: how many were asked for.

    Longer slots count up to where the next shorter ones begin. Where these begin in the middle of a longer one, that one counts
    and they do not: nothing counts twice, and nothing is lost.
    """
    found: list[Slot] = []
    lengths = sorted(by_minutes, reverse=True)
    for minutes, shorter in zip(lengths, [*lengths[1:], None], strict=True):
        done_ms = found[-1].end_ms if found else 0
        mine = [slot for slot in by_minutes[minutes] if slot.began_ms >= done_ms]
        if shorter is not None:
            finer = by_minutes[shorter]
            is_cut = len(finer) >= limits[shorter]  # there are earlier ones, or have been
            mine = [slot for slot in mine if is_cut and slot.began_ms < finer[0].began_ms]
        found += mine
    return found


def _points(slots: Sequence[Slot], since_ms: int, until_ms: int, step: int, now_ms: int) -> list[Point]:
    """The steps from ``since_ms`` to ``until_ms``. The depths of a slot stand until the next one says otherwise."""
    depths: Mapping[str, int] = {}
    starts = range(since_ms - since_ms % step, until_ms, step)
    by_start: dict[int, list[Slot]] = {}
    for slot in slots:
        start = slot.began_ms - slot.began_ms % step
        if start < starts.start:
            depths = slot.depths
        by_start.setdefault(start, []).append(slot)
    points = []
    for start in starts:
        here = by_start.get(start, [])
        depths = here[-1].depths if here else depths
        sums = {name: sum(slot.counters.get(name, 0) for slot in here) for name in COUNTERS}
        points.append(
            Point(
                start,
                step,
                {name: total for name, total in sums.items() if total},
                depths,
                sum((slot.times.wait for slot in here), NO_TIMES),
                sum((slot.times.run for slot in here), NO_TIMES),
                start + step > now_ms,
            )
        )
    return points
