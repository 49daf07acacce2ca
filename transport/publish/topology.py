"""Topology: the queues and bindings that one channel has declared, as they are to be made again and kept alive.

They live in Redis, where every process sees the same. What a channel remembers of its own serves two ends: to make them again
when the server has lost them, and to keep temporary ones (``x-expires``) alive while it consumes. Called by the channel and,
for renewals, by the threads that renew leases.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import Any

from attrs import evolve

from ...schema.connection.after_fork import renew_in_children
from ...schema.connection.call import Call
from ...schema.native import keys
from ...schema.native.routing import FANOUT
from ...schema.native.scripts.exchange import Binding
from ...schema.native.scripts.results import Declared
from ..session import Session

FORWARDED = "x-dead-letter-exchange"
"""The argument of queues whose dead letters go on."""


class Topology:
    """What one channel has declared. Renewals are asked for by other threads."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.renewing = threading.Lock()
        """Held while renewals are under way: what is removed under it is not renewed, and so not made again, any more."""
        self._queues: dict[str, dict[str, Any]] = {}
        """Queue -> its arguments."""
        self._bindings: dict[tuple[str, Binding], int | None] = {}
        """(exchange, binding) -> its life in ms, None for ever."""
        renew_in_children(self)

    def after_fork(self) -> None:
        """In a forked child: another thread of the parent may hold the lock."""
        self.renewing = threading.Lock()

    # Queues

    def declare(self, queue: str, arguments: dict[str, Any]) -> Declared:
        """Declares a queue and remembers it. Raises QueueArgumentsError and connection errors."""
        declared = self._declare(queue, arguments)
        self._queues[queue] = arguments
        if self._session.foreign is not None:
            self._session.foreign.declared(queue, arguments)
        return declared

    def _declare(self, queue: str, arguments: Mapping[str, Any]) -> Declared:
        session = self._session
        if "x-expires" not in arguments:
            session.register(keys.queues(session.settings.prefix), queue)
        if FORWARDED in arguments:
            session.register(keys.forwarding(session.settings.prefix), queue)
        settings = session.settings
        declare = session.scripts.declare(
            queue,
            arguments,
            settings.priority_order,
            history=settings.history,
            dead_letter_limits=settings.dead_letter_limits,
        )
        declared = session.link.run(declare)
        while declared.more:
            declared = evolve(session.link.run(declare), created=declared.created)
        return declared

    def redeclare(self, queue: str) -> None:
        """A queue that is being consumed has gone (it expired, or the server lost it): makes it again as it was."""
        self._declare(queue, self._queues.get(queue, {}))
        for (exchange, binding), life in list(self._bindings.items()):
            if binding.queue == queue:
                self._session.routes.redeclare(exchange)
                self._bind(exchange, binding, life)

    def forget(self, queue: str) -> None:
        """The queue has been deleted."""
        self._queues.pop(queue, None)

    def is_temporary(self, queue: str) -> bool:
        """Whether this channel declared the queue to expire when it is not used."""
        return "x-expires" in self._queues.get(queue, {})

    def is_auto_delete(self, queue: str) -> bool:
        """Whether this channel declared the queue to go with its last consumer."""
        return bool(self._queues.get(queue, {}).get("auto-delete"))

    # Bindings

    def bind(self, exchange: str, binding: Binding) -> int | None:
        """Binds a queue for as long as it lives itself, and remembers it. Gives that in ms, None for ever."""
        life = self._queues.get(binding.queue, {}).get("x-expires")
        self._bind(exchange, binding, life)
        if self._session.foreign is not None:
            kind = self._session.routes.type_of(exchange)
            self._session.foreign.bind(binding.queue, exchange, binding.routing_key, kind, life)
        self._bindings[exchange, binding] = life
        return life

    def _bind(self, exchange: str, binding: Binding, life_ms: int | None) -> None:
        # The queue remembers where it is bound, so that deleting it, from whichever process, unbinds it.
        remember = self._session.scripts.bound(binding.queue, exchange)
        self._session.link.run_all([remember, *self._binding_calls(exchange, binding, life_ms)])

    def _binding_calls(self, exchange: str, binding: Binding, life_ms: int | None) -> list[Call[Any]]:
        """What makes a binding, or renews it."""
        exchanges = self._session.exchanges
        calls: list[Call[Any]] = [exchanges.bind(exchange, *binding, life_ms)]
        if binding.pattern == FANOUT:
            calls.append(exchanges.fanout_bind(exchange, binding.queue, life_ms))
        return calls

    def forget_bindings(self, exchange: str, bindings: Iterable[Binding]) -> None:
        """The bindings are being removed: they are not renewed any more."""
        with self.renewing:
            for binding in bindings:
                self._bindings.pop((exchange, binding), None)

    # Renewals

    def renewals(self) -> list[tuple[str, Call[Any]]]:
        """(queue, call) for each exclusive queue, which perhaps nobody consumes, and for each binding of a temporary one.

        Called by the lease renewer's thread, under ``renewing``, and by the gevent renewer's.
        """
        exclusive = self._session.exclusive.intersection(list(self._queues))
        renewals: list[tuple[str, Call[Any]]] = [(queue, self._session.scripts.advance(queue)) for queue in exclusive]
        for (exchange, binding), life in list(self._bindings.items()):
            if life:
                renewals += ((binding.queue, call) for call in self._binding_calls(exchange, binding, life))
        return renewals

    @property
    def shortest_life(self) -> float | None:
        """Seconds after which the first of this channel's temporary queues expires unless it is renewed; None without one."""
        lives = (arguments["x-expires"] / 1000 for arguments in list(self._queues.values()) if "x-expires" in arguments)
        return min(lives, default=None)
