"""Routes: which queues a message published to an exchange goes to.

Bindings live in Redis, so that every process sees what any other has bound. Producers cache them and check the cache with
each publish, in the same round trip: the exchange's version tells of new bindings, and each queue refuses a message that
relies on a binding it has lost. So the cache is never wrong, and costs no round trip.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import field, frozen

from ...schema.connection.call import Call
from ...schema.native.routing import FANOUT, NO_HEADERS, queues_of
from ...schema.native.scripts.exchange import Binding, Bindings, Exchanges
from ...schema.native.scripts.queue_scripts import QueueScripts
from ..connection.link import ServerLink
from ..errors import NoRoute


@frozen
class Table:
    """The bindings of one exchange as they were at ``version``."""

    version: int
    bindings: tuple[Binding, ...]
    routes: dict[str, int] = field(factory=dict)
    """Queue -> the version of its routes, which a publish must quote."""
    type: str = ""
    """What the exchange was declared as; "" if it never was."""
    alternate: str = ""
    """The exchange for what no queue of this one wants."""

    def queues(self, routing_key: str, headers: Mapping[str, Any] = NO_HEADERS) -> list[str]:
        """The queues for a message, each once, sorted."""
        return sorted(queues_of(self.bindings, routing_key, headers))


class Routes:
    """The cache of one connection."""

    def __init__(self, scripts: QueueScripts, exchanges: Exchanges, link: ServerLink) -> None:
        self._scripts = scripts
        self._exchanges = exchanges
        self._link = link
        self._tables: dict[str, Table] = {}
        self._declared: dict[str, Call[int]] = {}
        """What this connection has declared."""
        self._types: dict[str, str] = {}

    def declare(self, exchange: str, exchange_type: str, alternate: str = "", auto_delete: bool = False) -> None:
        """Declares an exchange. Raises ExchangeTypeError for one that has another type."""
        call = self._exchanges.declare(exchange, exchange_type, alternate, auto_delete)
        self._link.run(call)
        self._declared[exchange] = call
        self._types[exchange] = exchange_type
        self.forget(exchange)

    def redeclare(self, exchange: str) -> None:
        """Declares an exchange as this connection did before, if it did; the server has lost it."""
        if exchange in self._declared:
            self._link.run(self._declared[exchange])

    def is_known(self, exchange: str) -> bool:
        """Whether the exchange was declared, here or anywhere, as far as this connection has seen."""
        table = self.table(exchange)
        return exchange in self._types or bool(table.type or table.bindings)

    def exists(self, exchange: str) -> bool:
        """Whether there is such an exchange, now. The default one always is."""
        if not exchange:
            return True
        table = self.refresh(exchange)
        return bool(table.type or table.bindings)

    def type_of(self, exchange: str) -> str:
        """The exchange's type, by its declaration here or anywhere; direct for one that was never declared."""
        return self._types.get(exchange) or self.table(exchange).type or "direct"

    def is_fanout(self, exchange: str) -> bool:
        """Whether the exchange broadcasts."""
        return bool(exchange) and self.type_of(exchange) == FANOUT

    def table(self, exchange: str) -> Table:
        """The bindings as this connection last saw them."""
        table = self._tables.get(exchange)
        return self.refresh(exchange) if table is None else table

    def refresh(self, exchange: str) -> Table:
        """Reads the bindings again, with the route versions of their queues.

        The version of the bindings is read once more after those and must not have changed in between, or a binding that was
        removed just then would go unnoticed.
        """
        while True:
            found = self.bindings(exchange)
            queues = sorted({binding.queue for binding in found.bindings})
            calls = [self._scripts.size(queue) for queue in queues]
            *sizes, version = self._link.run_all([*calls, self._exchanges.version(exchange)])
            if version == found.version:
                break
        routes = {queue: size.routes for queue, size in zip(queues, sizes, strict=True)}
        table = Table(found.version, found.bindings, routes, found.type, found.alternate)
        self._tables[exchange] = table
        return table

    def bindings(self, exchange: str) -> Bindings:
        """All bindings of an exchange, now. Very many come in parts, which are read anew when one of them changes meanwhile."""
        found = self._link.run(self._exchanges.bindings(exchange))
        while found.rest:
            part = self._link.run(self._exchanges.bindings(exchange, found.rest))
            same = part.before == found.version
            found = found.with_part(part) if same else self._link.run(self._exchanges.bindings(exchange))
        return found

    def forget(self, exchange: str) -> None:
        """Drops what is cached, because this connection changed it."""
        self._tables.pop(exchange, None)

    def deleted(self, exchange: str) -> None:
        """This connection has deleted the exchange."""
        self.forget(exchange)
        self._declared.pop(exchange, None)
        self._types.pop(exchange, None)

    def alternates(self, exchange: str) -> Iterator[str]:
        """The exchanges to which a message goes, one after the other, as long as no queue wants it."""
        seen = {exchange}
        while (alternate := self.table(exchange).alternate) and alternate not in seen:
            yield alternate
            seen.add(alternate)
            exchange = alternate

    def no_route(self, exchange: str, routing_key: str) -> NoRoute:
        """The error for a message that no queue wants."""
        if exchange and not self.is_known(exchange):
            return NoRoute(f"there is no exchange {exchange!r}; declare it before publishing (the message was not stored)")
        return NoRoute(
            f"no queue is bound to the exchange {exchange!r} with the routing key {routing_key!r}; "
            "declare the queue before publishing (the message was not stored)"
        )
