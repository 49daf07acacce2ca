"""Declarations: the exchanges, queues and bindings half of a channel.

All of it lives in Redis, so that every process sees the same and a queue can be unbound or deleted from anywhere. What a
channel remembers of its own declarations serves two ends: to make them again when the server has lost them, and to keep
temporary ones (``x-expires``) alive while it consumes.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from amqp.protocol import queue_declare_ok_t
from attrs import evolve
from kombu.transport.base import StdChannel, to_rabbitmq_queue_arguments

from ...schema.connection.call import Call
from ...schema.errors import UsageError
from ...schema.keys import glob_escape
from ...schema.native import keys
from ...schema.native.routing import FANOUT, pattern
from ...schema.native.scripts.exchange import Binding
from ...schema.native.scripts.queue_scripts import MAX_PER_CALL
from ...schema.native.scripts.results import Declared
from ...schema.text import to_text
from ..errors import NotFound

if TYPE_CHECKING:
    from ..transport import Transport

BOUND_TO = "bound-to:"
"""Begins the fields of a queue's meta that name the exchanges it is bound to."""
FORWARDED = "x-dead-letter-exchange"
"""The argument of queues whose dead letters go on."""
EXCLUSIVE = 3
"""Leases after which an exclusive queue goes whose process is dead."""


class Declarations(StdChannel):  # type: ignore[misc]
    """What kombu calls to declare, bind, purge and delete."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self.settings = transport.settings
        self.scripts = transport.scripts
        self.link = transport.link
        self.renewing = threading.Lock()
        """Held while renewals are under way: what is struck off under it is not renewed, and so not made again, any more."""
        self._declared: dict[str, dict[str, Any]] = {}
        """Queue -> its arguments."""
        self._bound: dict[tuple[str, Binding], int | None] = {}
        """(exchange, binding) -> its life in ms, None for ever."""

    # Exchanges

    def exchange_declare(
        self,
        exchange: str = "",
        type: str = "direct",  # noqa: A002 - kombu's name
        durable: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        nowait: bool = False,
        passive: bool = False,
    ) -> None:
        """Declares an exchange; its type and ``alternate-exchange`` stay in Redis.

        Raises NotFound for a passive declaration of none, ExchangeTypeError for another type than it has, UsageError for one
        that there is not.
        """
        routes = self.transport.routes
        if passive:
            if not routes.exists(exchange):
                raise NotFound(f"exchange {exchange!r}")
            return
        exchange_type = type or "direct"
        if exchange_type not in self.transport.implements.exchange_type:
            known = ", ".join(sorted(self.transport.implements.exchange_type))
            raise UsageError(f"exchange {exchange!r} can't be of type {exchange_type!r}; there are: {known}")
        if exchange:
            routes.declare(exchange, exchange_type, str((arguments or {}).get("alternate-exchange") or ""), auto_delete)

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        """Deletes an exchange with its bindings; the queues stay."""
        routes = self.transport.routes
        is_fanout = routes.is_fanout(exchange)
        table = routes.refresh(exchange)
        if if_unused and table.bindings:
            return
        self._strike_off(exchange, table.bindings)
        for first in range(0, len(table.bindings) - MAX_PER_CALL, MAX_PER_CALL):  # the last ones go with the exchange
            self.link.run(self.transport.exchanges.unbind_all(exchange, table.bindings[first : first + MAX_PER_CALL]))
        self.link.run(self.transport.exchanges.delete(exchange))
        self.link.run(self.transport.exchanges.forget_unroutable(exchange))
        if is_fanout:
            self.link.run(self.transport.exchanges.fanout_delete(exchange))
        for queue in {binding.queue for binding in table.bindings}:
            self.link.run(self.scripts.bump_routes(queue))
        routes.gone(exchange)

    def exchange_bind(self, *_: Any, **__: Any) -> None:
        """Exchanges bound to exchanges are RabbitMQ's own."""
        raise NotImplementedError("ferryman:// binds queues to exchanges, not exchanges to one another; see alternate-exchange")

    exchange_unbind = exchange_bind

    # Queues

    def prepare_queue_arguments(self, arguments: Mapping[str, Any] | None, **kwargs: Any) -> dict[str, Any]:
        """kombu's ``expires``, ``message_ttl`` … as the ``x-`` arguments they stand for."""
        prepared: dict[str, Any] = to_rabbitmq_queue_arguments(arguments or {}, **kwargs)
        return prepared

    def queue_declare(
        self,
        queue: str | None = None,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Any] | None = None,
        nowait: bool = False,
    ) -> queue_declare_ok_t:
        """Declares a queue; its arguments stay in Redis, so that every publisher honours them.

        An exclusive one goes with this connection: when it is closed, or when its process has been dead for EXCLUSIVE leases.
        Raises NotFound for a passive declaration of no queue, QueueArgumentsError for arguments that can't be.
        """
        queue = queue or f"amq.gen-{uuid4()}"
        if passive:
            size = self.link.run(self.scripts.size(queue))
            if not size.exists:
                raise NotFound(f"queue {queue!r}")
            return queue_declare_ok_t(queue, size.waiting, size.consumers)
        given = dict(arguments or {})
        if auto_delete:
            given["auto-delete"] = True
        if exclusive:
            given.setdefault("x-expires", EXCLUSIVE * self.settings.lease_ms)
            self.transport.exclusive.add(queue)
        declared = self._declare(queue, given)
        self._declared[queue] = given
        if exclusive:
            self.keep_alive()
        if FORWARDED in given:
            self.transport.letters.mark(queue)
        return queue_declare_ok_t(queue, declared.waiting, declared.consumers)

    @abstractmethod
    def keep_alive(self) -> None:
        """Has this channel's renewals sent from now on."""

    def _declare(self, queue: str, arguments: Mapping[str, Any]) -> Declared:
        if "x-expires" not in arguments:
            self.transport.enlist(keys.queues(self.settings.prefix), queue)
        if FORWARDED in arguments:
            self.transport.enlist(keys.forwarding(self.settings.prefix), queue)
        declare = self.scripts.declare(queue, arguments, self.settings.priority_order)
        declared = self.link.run(declare)
        while declared.more:
            declared = evolve(self.link.run(declare), created=declared.created)
        return declared

    def redeclare(self, queue: str) -> None:
        """A queue that is being consumed has gone (it expired, or the server lost it): makes it again as it was."""
        self._declare(queue, self._declared.get(queue, {}))
        for (exchange, binding), life in list(self._bound.items()):
            if binding.queue == queue:
                self.transport.routes.declare_again(exchange)
                self._bind(exchange, binding, life)

    def queue_bind(
        self,
        queue: str,
        exchange: str = "",
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
        nowait: bool = False,
    ) -> None:
        """Binds a queue to an exchange. The default exchange needs no binding."""
        if not exchange:
            return
        routes = self.transport.routes
        binding = Binding(queue, routing_key, pattern(routes.type_of(exchange), arguments))
        life = self._declared.get(queue, {}).get("x-expires")
        self._bind(exchange, binding, life)
        self._bound[exchange, binding] = life
        if binding.pattern == FANOUT:
            self.transport.broadcasts.setdefault(queue, {})[exchange] = life
            if self.transport.consumers_of(queue):
                self.transport.poller.fanout.subscribe(exchange, queue, life)
        routes.forget(exchange)

    def _bind(self, exchange: str, binding: Binding, life_ms: int | None) -> None:
        # The queue remembers where it is bound, so that deleting it, from whichever process, unbinds it.
        self.link.run_all([self.scripts.bound(binding.queue, exchange), *self._binding_calls(exchange, binding, life_ms)])

    def _binding_calls(self, exchange: str, binding: Binding, life_ms: int | None) -> list[Call[Any]]:
        """What makes a binding, or renews it."""
        exchanges = self.transport.exchanges
        calls: list[Call[Any]] = [exchanges.bind(exchange, *binding, life_ms)]
        if binding.pattern == FANOUT:
            calls.append(exchanges.fanout_bind(exchange, binding.queue, life_ms))
        return calls

    def declaration_renewals(self) -> list[tuple[str, Call[Any]]]:
        """(queue, call) for each exclusive queue, which perhaps nobody consumes, and for each binding of a temporary one.

        Called by the renewer's thread, under ``renewing``, and by the gevent renewer's.
        """
        exclusive = self.transport.exclusive.intersection(list(self._declared))
        renewals: list[tuple[str, Call[Any]]] = [(queue, self.scripts.advance(queue)) for queue in exclusive]
        for (exchange, binding), life in list(self._bound.items()):
            if life:
                renewals += ((binding.queue, call) for call in self._binding_calls(exchange, binding, life))
        return renewals

    @property
    def shortest_life(self) -> float | None:
        """Seconds after which the first of this channel's temporary queues expires unless it is renewed; None without one."""
        lives = (arguments["x-expires"] / 1000 for arguments in list(self._declared.values()) if "x-expires" in arguments)
        return min(lives, default=None)

    def is_auto_delete(self, queue: str) -> bool:
        """Whether this channel declared the queue to go with its last consumer."""
        return bool(self._declared.get(queue, {}).get("auto-delete"))

    def queue_unbind(
        self,
        queue: str,
        exchange: str = "",
        routing_key: str = "",
        arguments: Mapping[str, Any] | None = None,
        nowait: bool = False,
    ) -> None:
        """Removes a binding, for every process."""
        if exchange:
            gone = pattern(self.transport.routes.type_of(exchange), arguments)
            self._unbind(queue, exchange, lambda binding: binding == Binding(queue, routing_key, gone))

    def _unbind(self, queue: str, exchange: str, which: Callable[[Binding], bool]) -> None:
        table = self.transport.routes.refresh(exchange)
        gone = [binding for binding in table.bindings if binding.queue == queue and which(binding)]
        if not gone:
            return
        self._strike_off(exchange, gone)
        for first in range(0, len(gone), MAX_PER_CALL):
            self.link.run(self.transport.exchanges.unbind_all(exchange, gone[first : first + MAX_PER_CALL]))
        if any(binding.pattern == FANOUT for binding in gone):
            self.link.run(self.transport.exchanges.fanout_unbind(exchange, queue))
            self.transport.poller.fanout.unsubscribe(queue)
            self.transport.broadcasts.pop(queue, None)
        self.link.run(self.scripts.bump_routes(queue))
        self.transport.routes.forget(exchange)

    def _unbind_from(self, queue: str, exchanges: Iterable[str]) -> None:
        for exchange in exchanges:
            self._unbind(queue, exchange, lambda _: True)

    def _strike_off(self, exchange: str, bindings: Iterable[Binding]) -> None:
        with self.renewing:
            for binding in bindings:
                self._bound.pop((exchange, binding), None)

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, nowait: bool = False) -> int:
        """Deletes a queue with its messages and bindings, for every process. Gives the number of messages removed."""
        names = map(to_text, self.link.command("HKEYS", self.scripts.keys(queue).meta))
        bound_to = [name.removeprefix(BOUND_TO) for name in names if name.startswith(BOUND_TO)]
        is_conditional = if_unused or if_empty
        if not is_conditional:
            # First, because a deletion that is cut off and repeated would not find any more where the queue was bound.
            self._unbind_from(queue, bound_to)
        deleted = self.link.run(self.scripts.delete(queue, if_unused, if_empty))
        if deleted.status in ("used", "filled"):
            return 0
        removed = deleted.jobs
        while deleted.more:
            deleted = self.link.run(self.scripts.delete(queue))
            removed += deleted.jobs
        if is_conditional:
            self._unbind_from(queue, bound_to)
        for registry in (keys.queues, keys.forwarding):
            self.link.command("SREM", registry(self.settings.prefix), queue)
        self._declared.pop(queue, None)
        self.transport.exclusive.discard(queue)
        return removed

    def after_reply_message_received(self, queue: str) -> None:
        """A reply queue has done its work."""
        self.queue_delete(queue)

    def queue_purge(self, queue: str, **_: Any) -> int:
        """Removes all waiting and scheduled messages; gives how many. What consumers hold stays theirs."""
        removed = 0
        while True:
            purged = self.link.run(self.scripts.purge(queue))
            removed += purged.jobs
            if not purged.more:
                return removed

    def list_bindings(self) -> Iterator[tuple[str, str, str]]:
        """(queue, exchange, routing key) of every binding under this prefix, whoever made it."""
        prefix = keys.exchange(self.settings.prefix, "")
        for name in self.link.scan(glob_escape(to_text(prefix)) + "*"):
            exchange = to_text(name.removeprefix(prefix))
            for binding in self.transport.routes.bindings(exchange).bindings:
                yield binding.queue, exchange, binding.routing_key
