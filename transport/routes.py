"""Routes: which queues a message published to an exchange goes to.

Bindings live in Redis, so that every process sees what any other has bound. Producers cache them and check the cache with
each publish, in the same round trip: the exchange's version tells of new bindings, and each queue refuses a message that
relies on a binding it has lost. So the cache is never wrong, and costs no round trip.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from attrs import field, frozen

from .errors import NoRoute

if TYPE_CHECKING:
    from ..schema.native.exchange import Binding, Exchanges
    from ..schema.native.live import Live
    from .wire import Wire

DIRECT = ""
FANOUT = "fanout"
"""What stands in a binding's pattern: nothing for direct, this word for fanout, a regular expression for topic."""

WILDCARDS = {"*": r"[^.]+", "#": r".*?"}


def pattern(exchange_type: str, routing_key: str) -> str:
    """The pattern that a binding stores, by the exchange's type."""
    if exchange_type == "topic":
        words = (WILDCARDS.get(word, re.escape(word)) for word in routing_key.split("."))
        return "^" + r"\.".join(words) + "$"
    return FANOUT if exchange_type == "fanout" else DIRECT


@lru_cache(maxsize=1024)
def _compiled(text: str) -> re.Pattern[str]:
    return re.compile(text, re.DOTALL)


def matches(binding: Binding, routing_key: str) -> bool:
    """Whether a message with this routing key goes to the binding's queue."""
    if binding.pattern == DIRECT:
        return binding.routing_key == routing_key
    if binding.pattern == FANOUT:
        return True
    return _compiled(binding.pattern).match(routing_key) is not None


@frozen
class Table:
    """The bindings of one exchange as they were at ``version``."""

    version: int
    bindings: tuple[Binding, ...]
    routes: dict[str, int] = field(factory=dict)
    """Queue -> the version of its routes, which a publish must quote."""

    @property
    def is_fanout(self) -> bool:
        """Whether the exchange broadcasts."""
        return any(binding.pattern == FANOUT for binding in self.bindings)

    def queues(self, routing_key: str) -> list[str]:
        """The queues for a routing key, each once, sorted."""
        return sorted({binding.queue for binding in self.bindings if matches(binding, routing_key)})


class Routes:
    """The cache of one connection."""

    def __init__(self, live: Live, exchanges: Exchanges, wire: Wire) -> None:
        self._live = live
        self._exchanges = exchanges
        self._wire = wire
        self._tables: dict[str, Table] = {}
        self._types: dict[str, str] = {}

    def declare(self, exchange: str, exchange_type: str) -> None:
        """Remembers an exchange's type: as long as nothing is bound, nothing else tells it."""
        self._types[exchange] = exchange_type

    def type_of(self, exchange: str) -> str | None:
        """The type that this connection declared; None if it did not."""
        return self._types.get(exchange)

    def is_fanout(self, exchange: str) -> bool:
        """Whether the exchange broadcasts, by its declaration here or by what others have bound."""
        if exchange in self._types:
            return self._types[exchange] == FANOUT
        return bool(exchange) and self.table(exchange).is_fanout

    def table(self, exchange: str) -> Table:
        """The bindings as this connection last saw them."""
        table = self._tables.get(exchange)
        return self.refresh(exchange) if table is None else table

    def refresh(self, exchange: str) -> Table:
        """Reads the bindings again, with the route versions of their queues.

        The bindings are read once more after those versions and must not have changed in between, or a binding that was
        removed just then would go unnoticed.
        """
        before = self._wire.run(self._exchanges.bindings(exchange))
        while True:
            queues = sorted({binding.queue for binding in before.bindings})
            *sizes, after = self._wire.run_all(
                [*(self._live.size(queue) for queue in queues), self._exchanges.bindings(exchange)]
            )
            if after.version == before.version:
                break
            before = after
        routes = {queue: size.routes for queue, size in zip(queues, sizes, strict=True)}
        table = Table(after.version, after.bindings, routes)
        self._tables[exchange] = table
        return table

    def forget(self, exchange: str) -> None:
        """Drops what is cached, because this connection changed it."""
        self._tables.pop(exchange, None)

    def no_route(self, exchange: str, routing_key: str) -> NoRoute | None:
        """The error for a message that no queue wants; None where that is nothing unusual (topics, events)."""
        if self._types.get(exchange, "direct") != "direct" or any(b.pattern for b in self.table(exchange).bindings):
            return None
        return NoRoute(
            f"no queue is bound to the exchange {exchange!r} with the routing key {routing_key!r}; "
            "declare the queue before publishing (the message was not stored)"
        )
