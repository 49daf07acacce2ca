"""Declarations: the exchanges, queues and bindings half of a channel.

All of it lives in Redis, so that every process sees the same and a queue can be unbound or deleted from anywhere. What the
channel has declared itself is remembered in ``topology.py``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from uuid import uuid4

from amqp.protocol import queue_declare_ok_t
from kombu.transport.base import StdChannel, to_rabbitmq_queue_arguments

from ...schema.errors import UsageError
from ...schema.keys import glob_escape
from ...schema.native import keys
from ...schema.native.routing import FANOUT, pattern
from ...schema.native.scripts.exchange import Binding
from ...schema.native.scripts.queue_scripts import MAX_PER_CALL
from ...schema.native.scripts.results import Size
from ...schema.text import to_text
from ..consume.fanout import Fanout
from ..dead_letters import DeadLetters
from ..errors import NotFound
from ..session import Session
from .topology import FORWARDED, Topology

EXCHANGE_TYPES = ("direct", "fanout", "headers", "topic")
"""The types of exchanges that there are."""
BOUND_TO = "bound-to:"
"""Begins the fields of a queue's meta that name the exchanges it is bound to."""
EXCLUSIVE = 3
"""Leases after which an exclusive queue goes whose process is dead."""


class Declarations(StdChannel):  # type: ignore[misc]
    """What kombu calls to declare, bind, purge and delete."""

    def __init__(self, session: Session, dead_letters: DeadLetters, fanout: Fanout) -> None:
        self.session = session
        self.dead_letters = dead_letters
        self.topology = Topology(session)
        self._fanout = fanout

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
        routes = self.session.routes
        if passive:
            if not routes.exists(exchange):
                raise NotFound(f"exchange {exchange!r}")
            return
        exchange_type = type or "direct"
        if exchange_type not in EXCHANGE_TYPES:
            known = ", ".join(EXCHANGE_TYPES)
            raise UsageError(f"exchange {exchange!r} can't be of type {exchange_type!r}; there are: {known}")
        if exchange:
            routes.declare(exchange, exchange_type, str((arguments or {}).get("alternate-exchange") or ""), auto_delete)

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        """Deletes an exchange with its bindings; the queues stay."""
        routes = self.session.routes
        is_fanout = routes.is_fanout(exchange)
        table = routes.refresh(exchange)
        if if_unused and table.bindings:
            return
        self.topology.forget_bindings(exchange, table.bindings)
        for first in range(0, len(table.bindings) - MAX_PER_CALL, MAX_PER_CALL):  # the last ones go with the exchange
            self.session.link.run(self.session.exchanges.unbind_all(exchange, table.bindings[first : first + MAX_PER_CALL]))
        self.session.link.run(self.session.exchanges.delete(exchange))
        self.session.link.run(self.session.exchanges.forget_unroutable(exchange))
        if is_fanout:
            self.session.link.run(self.session.exchanges.fanout_delete(exchange))
        for queue in {binding.queue for binding in table.bindings}:
            self.session.link.run(self.session.scripts.bump_routes(queue))
        routes.deleted(exchange)

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
            sizes = self._sizes(queue)
            if not any(size.exists for size in sizes):
                raise NotFound(f"queue {queue!r}")
            return queue_declare_ok_t(queue, sum(size.waiting for size in sizes), max(size.consumers for size in sizes))
        given = dict(arguments or {})
        if auto_delete:
            given["auto-delete"] = True
        if exclusive:
            given.setdefault("x-expires", EXCLUSIVE * self.session.settings.lease_ms)
            self.session.exclusive.add(queue)
        declared = self.topology.declare(queue, given)
        if exclusive:
            self.keep_alive()
        if FORWARDED in given:
            self.dead_letters.mark(queue)
        others = [] if self.session.foreign is None else self._sizes(queue)[:-1]
        waiting = declared.waiting + sum(size.waiting for size in others)
        return queue_declare_ok_t(queue, waiting, max([declared.consumers, *(size.consumers for size in others)]))

    def _sizes(self, queue: str) -> list[Size]:
        """The counts of another system's queue, if it has the tasks, and of ferryman's own of that name."""
        sides = self.session.sides(queue)
        sizes: list[Size] = self.session.link.run_all([self.session.family_of(side).size(side) for side in sides])
        return sizes

    @abstractmethod
    def keep_alive(self) -> None:
        """Has this channel's renewals sent from now on."""

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
        routes = self.session.routes
        binding = Binding(queue, routing_key, pattern(routes.type_of(exchange), arguments))
        life = self.topology.bind(exchange, binding)
        if binding.pattern == FANOUT:
            self._fanout.bind(exchange, queue, life)
        routes.forget(exchange)

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
            unbound = pattern(self.session.routes.type_of(exchange), arguments)
            self._unbind(queue, exchange, lambda binding: binding == Binding(queue, routing_key, unbound))

    def _unbind(self, queue: str, exchange: str, which: Callable[[Binding], bool]) -> None:
        table = self.session.routes.refresh(exchange)
        unbound = [binding for binding in table.bindings if binding.queue == queue and which(binding)]
        if not unbound:
            return
        if self.session.foreign is not None:
            for binding in unbound:
                self.session.foreign.unbind(queue, exchange, binding.routing_key, self.session.routes.type_of(exchange))
        self.topology.forget_bindings(exchange, unbound)
        for first in range(0, len(unbound), MAX_PER_CALL):
            self.session.link.run(self.session.exchanges.unbind_all(exchange, unbound[first : first + MAX_PER_CALL]))
        if any(binding.pattern == FANOUT for binding in unbound):
            self.session.link.run(self.session.exchanges.fanout_unbind(exchange, queue))
            self._fanout.unbind(queue)
        self.session.link.run(self.session.scripts.bump_routes(queue))
        self.session.routes.forget(exchange)

    def _unbind_from(self, queue: str, exchanges: Iterable[str]) -> None:
        for exchange in exchanges:
            self._unbind(queue, exchange, lambda _: True)

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, nowait: bool = False) -> int:
        """Deletes a queue with its messages and bindings, for every process. Gives the number of messages removed.

        Of a queue that is another system's only ferryman's own part goes; the jobs are not its own to delete.
        """
        names = map(to_text, self.session.link.command("HKEYS", self.session.scripts.keys(queue).meta))
        bound_to = [name.removeprefix(BOUND_TO) for name in names if name.startswith(BOUND_TO)]
        is_conditional = if_unused or if_empty
        if not is_conditional:
            # First, because a deletion that is cut off and repeated would not find any more where the queue was bound.
            self._unbind_from(queue, bound_to)
        deleted = self.session.link.run(self.session.scripts.delete(queue, if_unused, if_empty))
        if deleted.status in ("used", "filled"):
            return 0
        removed = deleted.jobs
        while deleted.more:
            deleted = self.session.link.run(self.session.scripts.delete(queue))
            removed += deleted.jobs
        if is_conditional:
            self._unbind_from(queue, bound_to)
        for registry in (keys.queues, keys.forwarding):
            self.session.link.command("SREM", registry(self.session.settings.prefix), queue)
        self.topology.forget(queue)
        self.session.exclusive.discard(queue)
        return removed

    def after_reply_message_received(self, queue: str) -> None:
        """A reply queue has done its work."""
        self.queue_delete(queue)

    def queue_purge(self, queue: str, **_: Any) -> int:
        """Removes all waiting and scheduled messages; gives how many. What consumers hold stays theirs.

        From another system's queue what waits is removed, as that system removes it.
        """
        removed = 0
        for side in self.session.sides(queue):
            more = True
            while more:
                purged = self.session.link.run(self.session.family_of(side).purge(side))
                removed, more = removed + purged.jobs, purged.more
        return removed

    def list_bindings(self) -> Iterator[tuple[str, str, str]]:
        """(queue, exchange, routing key) of every binding under this prefix, whoever made it."""
        prefix = keys.exchange(self.session.settings.prefix, "")
        for name in self.session.link.scan(glob_escape(to_text(prefix)) + "*"):
            exchange = to_text(name.removeprefix(prefix))
            for binding in self.session.routes.bindings(exchange).bindings:
                yield binding.queue, exchange, binding.routing_key
