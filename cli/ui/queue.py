"""Queue: one queue: its numbers, priorities and counters, what its jobs are doing, and what can be done to it. ``/queue``."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import Response

from ...operations import numbers
from ...operations.broker import open_broker
from ...operations.numbers import Numbers
from ...schema.connection.address import DEFAULT_FAMILY
from ...schema.job import State
from ...schema.text import to_text
from .failures import NotFound
from .past import past
from .queuelist import QueueRow, scan
from .queues import row_cells
from .render import age, cell, number
from .steer import possible
from .view import View


def page(view: View) -> Response:
    """The page."""
    name = view.required("queue")
    row = found_row(view, name)
    return view.page(
        "queue",
        queue=name,
        row=row,
        states=list(State),
        arguments=_arguments(view, name),
        possible=possible(view),
        past=None if row.numbers is None and view.address.family == DEFAULT_FAMILY else past(view, name),
        is_paused=row.numbers is not None and bool(row.numbers.is_paused),
    )


def cells(view: View) -> Mapping[str, str]:
    """The live numbers of the page."""
    row = found_row(view, view.required("queue"))
    texts = row_cells(row)
    if row.numbers is not None:
        texts |= {cell(row.name, "counter", name): number(value) for name, value in row.numbers.counters.items()}
        for priority, waiting in row.numbers.waiting.items():
            texts[cell(row.name, "priority", priority)] = number(waiting)
            texts[cell(row.name, "age", priority)] = age(row.numbers.ages_ms.get(priority))
    return texts


def found_row(view: View, name: str) -> QueueRow:
    """The numbers of one queue. Raises NotFound."""
    found: Mapping[str, Numbers | Exception]
    if view.address.family == DEFAULT_FAMILY or numbers.is_brief(view.address):
        found = numbers.look(view.address, (name,))
    else:
        look = scan(view)
        if look.found is None:
            return QueueRow(name, None)
        found = look.found
    if name not in found:
        raise NotFound(f"there is no queue {name!r} in this keyspace, or not any more")
    each = found[name]
    return QueueRow(name, None, str(each)) if isinstance(each, Exception) else QueueRow(name, each)


def _arguments(view: View, name: str) -> Mapping[str, str]:
    """What stands in meta beside the counters: the arguments with which the queue was declared, and its bindings."""
    if view.address.family != DEFAULT_FAMILY:
        return {}
    with open_broker(view.address) as broker:
        reply = broker.link.command("HGETALL", broker.scripts.keys(name).meta)
        counters = broker.link.run(broker.scripts.counters(name))
    words = list(map(to_text, reply.keys() if isinstance(reply, dict) else reply[::2]))
    values = list(map(to_text, reply.values() if isinstance(reply, dict) else reply[1::2]))
    return {word: value for word, value in zip(words, values, strict=True) if word not in counters}
