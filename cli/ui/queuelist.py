"""QueueList: which queues a keyspace has and their numbers, for pages that show some of them, be they 100,000.

Ferryman's own queues are asked by name: those of the page in one round trip. Who sorts by a number needs all numbers: up to
FEW queues are asked at once, more by a look in the background that is some seconds old. Families that count by their indexes are
asked whole; of others every job must be read, which a visitor has to ask for. Called by the pages of queues and consumers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from ...operations import numbers
from ...operations.broker import open_broker
from ...operations.numbers import Numbers
from ...schema.connection.address import DEFAULT_FAMILY
from ...schema.job import State
from . import scans
from .background import Look
from .view import View

FEW = 1_000
"""Queues that are all asked for one page."""
MANY = 5_000
"""The names of more queues are remembered for some seconds."""
PAUSES = 10
"""A look in the background is made anew after so many times what it took."""
MAX_AGE_S = 10.0
"""Of numbers that a look in the background has found."""


@frozen
class QueueRow:
    """One queue."""

    name: str
    numbers: Numbers | None
    """None of one that is damaged, or has gone meanwhile."""
    damage: str = ""

    def number(self, state: State) -> int:
        """How many of its jobs are in a state."""
        return self.numbers.number(state) if self.numbers else 0

    def sum(self, states: Sequence[State]) -> int:
        """How many are in one of these states."""
        return sum(map(self.number, states))

    @property
    def consumers(self) -> int | None:
        return self.numbers.consumers if self.numbers else None

    @property
    def latency_ms(self) -> int | None:
        return self.numbers.latency_ms if self.numbers else None


ORDERS: Mapping[str, Callable[[QueueRow], float]] = {
    "oldest": lambda row: row.latency_ms or 0,
    "consumers": lambda row: row.consumers or 0,
    **{str(state): (lambda row, state=state: row.number(state)) for state in State},  # type: ignore[misc]
}
"""Orders beside that by name, the largest first."""


@define(eq=False)
class Snapshot:
    """The numbers of all queues at one moment, and the orders that were asked for."""

    found: Mapping[str, Numbers | Exception]
    _orders: dict[str, Sequence[QueueRow]] = field(factory=dict)

    def ordered(self, order: str) -> Sequence[QueueRow]:
        """All of them, sorted; once for each order."""
        if order not in self._orders:
            self._orders[order] = _sorted([_row(name, self.found[name]) for name in sorted(self.found)], order)
        return self._orders[order]


@frozen
class QueueList:
    """Some of the queues."""

    rows: Sequence[QueueRow]
    total: int
    """Queues that fit the filter."""
    all: int
    look: Look[Any] | None = None
    """The look in the background that these are from; None: they are of this moment."""
    must_scan: bool = False
    """Whether every job must be read for them, and the visitor has to say so."""


def queue_list(view: View, text: str, order: str, start: int, number: int) -> QueueList:
    """The queues whose names contain a text, sorted, from one place on. ``order``: "name", or one of ORDERS."""
    if view.address.family == DEFAULT_FAMILY:
        names = _names(view)
        fitting = _fitting(names, text)
        if order == "name" or len(fitting) <= FEW:
            asked = fitting[start : start + number] if order == "name" else fitting
            found = numbers.look(view.address, tuple(asked)) if asked else {}
            rows = [_row(name, found.get(name)) for name in asked]
            if order != "name":
                rows = _sorted(rows, order)[start : start + number]
            return QueueList(rows, len(fitting), len(names))
        return _from_snapshot(background(view), fitting, len(names), text, order, start, number)
    if numbers.is_brief(view.address):
        return _of(numbers.look(view.address), text, order, start, number)
    look = scan(view).seen()
    if look.found is None:
        return QueueList([], 0, 0, look, must_scan=True)
    return _of(look.found, text, order, start, number, look)


def _from_snapshot(
    look: Look[Snapshot], fitting: Sequence[str], known: int, text: str, order: str, start: int, number: int
) -> QueueList:
    """Those of many queues that fit, as a look in the background has seen them; without numbers while it is the first one."""
    if look.found is None:
        return QueueList([_row(name, None) for name in fitting[start : start + number]], len(fitting), known, look)
    rows = look.found.ordered(order)
    wanted = set(fitting) if text else None
    fit = rows if wanted is None else [row for row in rows if row.name in wanted]
    return QueueList(fit[start : start + number], len(fitting), known, look)


def scan(view: View) -> Look[Mapping[str, Numbers | Exception]]:
    """The numbers of all queues for which every job must be read; not started."""
    address = view.address
    return view.shared.background.look(("scan", *view.keyspace), lambda look: scans.numbers(address, look))


def background(view: View) -> Look[Snapshot]:
    """The numbers of all queues, as a look in the background has found them. What takes long is not looked at all the time."""
    address, shared = view.address, view.shared.background
    name = ("numbers", *view.keyspace)
    look = shared.look(name, lambda _look: Snapshot(numbers.look(address)))
    max_age_s = max(MAX_AGE_S, 0.0 if look.is_running else PAUSES * look.seconds)
    return shared.fresh(name, look.find, max_age_s)


def _names(view: View) -> Sequence[str]:
    """The queues that last, by name; of many they are some seconds old."""
    address, shared = view.address, view.shared.background

    def find(_look: Look[Sequence[str]]) -> Sequence[str]:
        with open_broker(address) as broker:
            return broker.queues(())

    look = shared.look(("names", *view.keyspace), find)
    if look.found is None or len(look.found) <= MANY:
        with open_broker(address) as broker:
            look.found, look.finished = broker.queues(()), time.time()
    else:
        shared.fresh(("names", *view.keyspace), find, MAX_AGE_S, 0.0)
    return look.found


def _of(
    found: Mapping[str, Numbers | Exception],
    text: str,
    order: str,
    start: int,
    number: int,
    look: Look[Mapping[str, Numbers | Exception]] | None = None,
) -> QueueList:
    fitting = _fitting(sorted(found), text)
    rows = _sorted([_row(name, found[name]) for name in fitting], order)
    return QueueList(rows[start : start + number], len(rows), len(found), look, must_scan=look is not None)


def _fitting(names: Sequence[str], text: str) -> list[str]:
    wanted = text.casefold()
    return [name for name in names if wanted in name.casefold()] if wanted else list(names)


def _sorted(rows: list[QueueRow], order: str) -> list[QueueRow]:
    return rows if order not in ORDERS else sorted(rows, key=ORDERS[order], reverse=True)


def _row(name: str, found: Numbers | Exception | None) -> QueueRow:
    if isinstance(found, Exception):
        return QueueRow(name, None, str(found))
    return QueueRow(name, found)
