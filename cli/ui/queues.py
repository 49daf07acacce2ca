"""Queues: all queues of a keyspace with their numbers, sorted, filtered, some at a time. ``/queues``."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from ...schema.errors import UsageError
from ...schema.job import State
from .notices import Notice
from .queuelist import ORDERS, QueueList, QueueRow, queue_list, scan
from .render import age, cell, number
from .view import View

ROWS = 100
STATES = (State.WAITING, State.SCHEDULED, State.ACTIVE, State.FAILED, State.COMPLETED)
"""The columns; rarer states have one on the queue's own page."""
MOST_PAGES = 100_000


def page(view: View) -> Response:
    """The page."""
    order, at = _order(view), view.number("page", 1, MOST_PAGES)
    found = _list(view)
    return view.page("queues", list=found, order=order, at=at, rows=ROWS, states=STATES, pages=-(-found.total // ROWS))


def counted(view: View) -> Response:
    """Starts to read every job, where indexes don't tell their numbers."""
    found = scan(view)
    if not found.is_running and not view.shared.background.start(found):
        return view.back(view.link("/queues"), Notice("warning", "Too much is being read already: try again later."))
    found.wait(0.5)
    return view.back(view.link("/queues"))


def cells(view: View) -> Mapping[str, str]:
    """The live numbers of the page."""
    found = _list(view)
    return {name: text for row in found.rows for name, text in row_cells(row).items()}


def row_cells(row: QueueRow) -> dict[str, str]:
    """The cells of one queue."""
    if row.numbers is None:
        return {}
    texts = {cell(row.name, str(state)): number(row.number(state)) for state in STATES}
    return texts | {cell(row.name, "oldest"): age(row.latency_ms), cell(row.name, "consumers"): number(row.consumers)}


def _list(view: View) -> QueueList:
    at = view.number("page", 1, MOST_PAGES)
    return queue_list(view, view.get("text"), _order(view), (at - 1) * ROWS, ROWS)


def _order(view: View) -> str:
    order = view.get("order") or "name"
    if order != "name" and order not in ORDERS:
        raise UsageError(f"queues can be sorted by name, {', '.join(ORDERS)}; not by {order!r}")
    return order
