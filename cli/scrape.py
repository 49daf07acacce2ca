"""Scrape: the numbers of a keyspace as Prometheus metrics. Used by ``ferryman metrics``; needs ``prometheus_client``.

Each look is over one connection of its own, so that a server that was down is found again by the next one. Only one is under way
at a time: who asks meanwhile is told the same, so that a server that does not answer gathers no requests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import accumulate

from attrs import define, field
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ..operations.numbers import Found, Numbers, look_with_unroutable
from ..schema.connection.address import Address
from ..schema.errors import FerrymanError
from ..schema.histogram import BUCKETS, Histogram, bound_ms
from ..schema.job import State
from ..schema.text import show
from .queues import RARE

COUNTERS: Mapping[str, str] = {
    "published": "Messages stored",
    "deduplicated": "Messages not stored because another one held their unique key",
    "delivered": "Messages handed to consumers, each time",
    "redelivered": "Messages handed to consumers that had been handed to one before",
    "acked": "Messages finished by their consumers",
    "cancelled": "Messages finished by a consumer whose lease was over, before another one had taken them",
    "requeued": "Messages given back by their consumers, to be delivered again",
    "released": "Messages given back by consumers that had not begun them",
    "reclaimed": "Messages taken back from consumers whose lease was over",
    "expired": "Messages that were not delivered in their time",
    "maxlen": "Messages that made room in a full queue",
    "broken": "Messages that could not be delivered because they were damaged",
    "dead": "Messages that became dead letters",
    "forwarded": "Dead letters that a dead letter exchange has taken",
    "revived": "Dead letters put back to their queue",
    "removed": "Messages removed by id",
    "purged": "Messages purged",
    "moved": "Messages that an operator moved to another queue",
    "dropped": "Dead letters deleted because the queue had too many or they were too old",
}
"""Counter of a queue -> what it counts. They begin anew when a queue is deleted and declared again."""


@define(eq=False)
class Scrape(Collector):
    """A collector for a ``prometheus_client`` registry.

    ``complain`` takes the one line that says why there are no numbers, whenever it is another than before.
    """

    address: Address
    complain: Callable[[str], None]
    failure: str = field(default="", init=False)
    """Why the last look gave no numbers; empty if it did."""
    _found: Found | None = field(default=None, init=False, repr=False)
    _unroutable: Mapping[str, int] = field(factory=dict, init=False, repr=False)
    _looks: int = field(default=0, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def registry(self) -> CollectorRegistry:
        """A registry of this collector alone: nothing of the process that shows the metrics."""
        registry = CollectorRegistry()
        registry.register(self)
        return registry

    def describe(self) -> list[Metric]:
        """Nothing: a registry must not look at the server before it is asked to."""
        return []

    def collect(self) -> Iterator[Metric]:
        """The numbers of one look. ``ferryman_up`` is 0, and alone, if it failed; never raises for a server that fails."""
        found = self.look()
        yield GaugeMetricFamily("ferryman_up", "Whether the server could be read", 0 if found is None else 1)
        if found is not None:
            yield from metrics(found)
            yield from exchange_metrics(self._unroutable)

    def look(self) -> Found | None:
        """The numbers, None if they can't be had: ``failure`` says why. Who asks while a look is under way gets what it finds."""
        looks = self._looks
        with self._lock:
            if looks == self._looks:
                self._found = self._look()
                self._looks += 1
            return self._found

    def _look(self) -> Found | None:
        found: Found
        try:
            found, self._unroutable = look_with_unroutable(self.address)
        except (FerrymanError, OSError) as error:
            if self.failure != str(error):
                self.failure = str(error)
                self.complain(self.failure)
            return None
        self.failure = ""
        return found


def metrics(found: Found) -> list[Metric]:
    """The metrics of queues by name; of those that can't be read, that alone."""
    gauge = partial(GaugeMetricFamily, labels=["queue"])
    up = gauge("ferryman_queue_up", "Whether the queue's numbers could be read")
    backlog = gauge("ferryman_queue_backlog", "Messages that wait or are worked on, those that have become due included")
    waiting = gauge("ferryman_queue_waiting", "Messages that wait, of all priorities, those that have become due included")
    latency = gauge(
        "ferryman_queue_latency_seconds",
        "How long the message that has waited longest has, from its due time if it was delayed; 0 where none waits",
    )
    messages = GaugeMetricFamily(
        "ferryman_queue_messages",
        "Messages by state; those that wait also by priority, where it is known",
        labels=["queue", "state", "priority"],
    )
    ages = GaugeMetricFamily(
        "ferryman_queue_oldest_age_seconds",
        "How long the first waiting message of each priority has waited, from its due time if it was delayed",
        labels=["queue", "priority"],
    )
    consumers = gauge("ferryman_queue_consumers", "Consumers with a lease")
    outbox = gauge("ferryman_queue_outbox_messages", "Dead letters on their way to the dead letter exchange")
    paused = gauge("ferryman_queue_paused", "1 while nothing is taken from the queue until it is resumed")
    waits = HistogramMetricFamily(
        "ferryman_queue_wait_seconds",
        "How long messages waited from their publish, or from their due time, to their first delivery",
        labels=["queue"],
    )
    runs = HistogramMetricFamily(
        "ferryman_queue_run_seconds", "How long consumers had the messages that they then acked or rejected", labels=["queue"]
    )
    counters = {name: CounterMetricFamily(f"ferryman_queue_{name}", text, labels=["queue"]) for name, text in COUNTERS.items()}
    for queue, numbers in {_label(name): numbers for name, numbers in found.items()}.items():
        up.add_metric([queue], 0 if isinstance(numbers, Exception) else 1)
        if isinstance(numbers, Exception):
            continue
        backlog.add_metric([queue], numbers.backlog)
        waiting.add_metric([queue], numbers.number(State.WAITING))
        if numbers.latency_ms is not None:
            latency.add_metric([queue], numbers.latency_ms / 1000)
        for (state, priority), number in _by_state(numbers).items():
            messages.add_metric([queue, str(state), priority], number)
        for priority, age in numbers.ages_ms.items():
            ages.add_metric([queue, priority], age / 1000)
        if numbers.consumers is not None:
            consumers.add_metric([queue], numbers.consumers)
        if numbers.outbox is not None:
            outbox.add_metric([queue], numbers.outbox)
        if numbers.is_paused is not None:
            paused.add_metric([queue], numbers.is_paused)
        if numbers.times is not None:
            for family, histogram in ((waits, numbers.times.wait), (runs, numbers.times.run)):
                family.add_metric([queue], _buckets(histogram), histogram.sum_ms / 1000)
        for name, number in numbers.counters.items():
            counters[name].add_metric([queue], number)
    gauges = (up, backlog, waiting, latency, messages, ages, consumers, outbox, paused)
    return [each for each in (*gauges, waits, runs, *counters.values()) if each.samples]


def exchange_metrics(dropped: Mapping[str, int]) -> list[Metric]:
    """How many messages of each exchange no queue wanted; nothing while there are none."""
    counter = CounterMetricFamily(
        "ferryman_exchange_unroutable", "Messages dropped because no queue was bound to get them", labels=["exchange"]
    )
    for exchange, number in {_label(name): number for name, number in dropped.items()}.items():
        counter.add_metric([exchange], number)
    return [counter] if counter.samples else []


def _by_state(numbers: Numbers) -> dict[tuple[State, str], int]:
    """Messages by state and priority. Every state but the rarest is there, be it 0, so that a graph has no gaps."""
    found_by: dict[tuple[State, str], int] = {}
    for state in State:
        number = numbers.number(state)
        if state is State.WAITING and numbers.waiting:
            found_by |= {(state, priority): each for priority, each in numbers.waiting.items()}
            # Nobody has asked for the priority of a delayed job that is due.
            due = number - sum(numbers.waiting.values())
            if due > 0:
                found_by[state, ""] = due
        elif number or state not in RARE:
            found_by[state, ""] = number
    return found_by


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """How many took at most each bound, in seconds as Prometheus wants them."""
    bounds = [*(repr(bound_ms(bucket) / 1000) for bucket in range(BUCKETS - 1)), "+Inf"]
    return list(zip(bounds, map(float, accumulate(histogram.counts)), strict=True))


def _label(name: str) -> str:
    """A queue's name as a label: UTF-8, with escapes for characters that can't be seen. Line ends are the format's to escape."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "\n".join(show(line, len(line)) for line in text.split("\n"))
