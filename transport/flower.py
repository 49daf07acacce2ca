"""Flower's broker page and its ``/api/queues/length``, for ``ferryman://``.

Flower makes the client that asks for queue lengths in a class that knows its own URL schemes only, and has no place where
others could register. So each new transport calls ``install``: where Flower's module is loaded, which is in Flower's process
alone, that class learns our schemes. Nothing here may disturb a Flower that has changed: it goes on without us then.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import field, frozen
from kombu import Connection

from .aliases import SCHEMES

MODULE = "flower.utils.broker"
COUNTS = ("messages", "messages_ready", "messages_unacknowledged", "consumers")


@frozen
class QueueLengths:
    """What Flower asks of a broker client."""

    url: str = field(repr=False)
    options: Mapping[str, Any]
    ssl: Any

    async def queues(self, names: Iterable[str]) -> list[dict[str, Any]]:
        """How full the queues are. Raises connection errors."""
        return await asyncio.to_thread(self._read, list(names))

    def _read(self, names: list[str]) -> list[dict[str, Any]]:
        with Connection(self.url, transport_options=dict(self.options), ssl=self.ssl) as connection:
            session = connection.default_channel.session
            sides = [(name, side) for name in names for side in session.sides(name)]
            sizes = session.link.run_all([session.family_of(side).size(side) for _, side in sides])
        totals: dict[str, dict[str, Any]] = {}
        for (name, _), size in zip(sides, sizes, strict=True):
            total = totals.setdefault(name, {"name": name, **dict.fromkeys(COUNTS, 0)})
            total["messages"] += size.waiting + size.scheduled + size.held
            total["messages_ready"] += size.waiting
            total["messages_unacknowledged"] += size.held
            total["consumers"] = max(total["consumers"], size.consumers)
        return list(totals.values())


def install() -> None:
    """Has Flower make QueueLengths for our URLs, if it is loaded and it is not installed yet."""
    factory = getattr(sys.modules.get(MODULE), "Broker", None)
    known = getattr(factory, "__new__", None)
    if factory is None or known is None or hasattr(factory, "knows_ferryman"):
        return

    def new(cls: Any, broker_url: str, *args: Any, **kwargs: Any) -> Any:
        if broker_url.partition(":")[0].partition("+")[0] in SCHEMES:
            return QueueLengths(broker_url, kwargs.get("broker_options") or {}, kwargs.get("broker_use_ssl"))
        return known(cls, broker_url, *args, **kwargs)

    factory.__new__ = staticmethod(new)
    factory.knows_ferryman = True
