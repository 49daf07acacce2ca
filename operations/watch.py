"""Watch: the numbers of queues again and again, with how fast they change, by at most two commands a queue and look.

Ferryman's own queues and those of a foreign keyspace are asked by one script each, besides which one command tells counters or a
pause. Connections stay open between looks, and are opened anew after an error. Only reads. Called by ``ferryman top``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from attrs import define, evolve, field, frozen

from ..migrations.counting import SERVERS
from ..migrations.local import LocalEngine
from ..migrations.source import open_source
from ..schema.connection.address import DEFAULT_FAMILY, Address, Kind
from ..schema.connection.call import Command
from ..schema.connection.shared import SharedConnections, sharing
from ..schema.errors import UsageError
from ..schema.job import State
from ..schema.live import LiveFamily
from ..schema.native.keys import DEFAULT_PREFIX
from ..schema.native.scripts.queue_scripts import QueueScripts
from ..schema.native.scripts.results import Size
from ..schema.text import to_text
from ..transport.connection.link import ServerLink
from ..transport.publish.revocation import durable_queues
from .broker import open_link
from .numbers import CHUNK, PATIENCE, Found, Numbers, of_size

MOST_QUEUES = 2000
"""Queues that one look asks; of more, those whose names come first, so that a look takes no seconds."""
TELLS_DEAD = ("kue",)
"""The foreign families in which a queue tells how many of its jobs have failed and how many are done."""


@frozen
class Look:
    """What one look has seen."""

    at: float
    """Monotonic, s."""
    found: Found
    queues: int
    """How many queues there are, looked at or not, that the filter fits."""
    rates: Mapping[str, Mapping[str, float]] = field(factory=dict)
    """Queue -> ``in`` and ``out``, jobs a second since the look before; nothing of queues that have no counters."""


@define
class Watch:
    """Looks at one keyspace. Raises UsageError at once for what can't be watched, ServerError while a server is away."""

    address: Address
    chosen: tuple[str, ...] = ()
    """The queues to look at; none: all that last."""
    text: str = ""
    """Only queues whose names contain it, capital letters or not."""
    _last: Look | None = field(default=None, init=False)
    _names: list[str] | None = field(default=None, init=False)
    _connections: SharedConnections = field(factory=SharedConnections, init=False)

    def __attrs_post_init__(self) -> None:
        if self.address.kind is Kind.RDB:
            raise UsageError("a snapshot file does not change; ferryman queues shows its numbers")
        if self.address.family != DEFAULT_FAMILY and self.address.kind not in SERVERS:
            raise UsageError("queues of other systems are watched on one server; ferryman queues reads a cluster")

    def look(self) -> Look:
        """The numbers now."""
        with sharing(self._connections), open_link(self.address, **self._patience()) as link:
            names = [name for name in self._all(link) if self.text.casefold() in name.casefold()]
            found = self._numbers(link, names[:MOST_QUEUES])
        look = Look(time.monotonic(), found, len(names))
        look = evolve(look, rates=_rates(self._last, look))
        self._last = look
        return look

    def close(self) -> None:
        """Closes its connections."""
        self._connections.close()

    def _patience(self) -> dict[str, float]:
        return {} if "socket_timeout" in self.address.options else {"socket_timeout": PATIENCE}

    def _all(self, link: ServerLink) -> Sequence[str]:
        if self.chosen:
            return self.chosen
        if self.address.family == DEFAULT_FAMILY:
            return sorted(durable_queues(link, QueueScripts(self.address.prefix)))
        words = self.address.key_family.queue_list(self.address.prefix)
        if words is not None:
            return sorted(map(to_text, link.run(Command(words, list))))
        if self._names is None:  # no key lists them: every job is read, once
            with open_source(self.address) as source:
                now_ms = source.clock_ms()
            self._names = [status.queue for status in LocalEngine().queues(self.address, now_ms)]
        return self._names

    def _numbers(self, link: ServerLink, names: Sequence[str]) -> dict[str, Numbers | Exception]:
        found: dict[str, Numbers | Exception] = {}
        for first in range(0, len(names), CHUNK):
            some = names[first : first + CHUNK]
            found |= self._own(link, some) if self.address.family == DEFAULT_FAMILY else self._foreign(link, some)
        return found

    def _own(self, link: ServerLink, names: Sequence[str]) -> dict[str, Numbers | Exception]:
        scripts = QueueScripts(self.address.prefix)
        calls = [call for name in names for call in (scripts.size(name, by_priority=True), scripts.counters(name))]
        outcomes = link.outcomes(calls)
        found: dict[str, Numbers | Exception] = {}
        for name, size, counters in zip(names, outcomes[::2], outcomes[1::2], strict=True):
            error = next((each for each in (size, counters) if isinstance(each, Exception)), None)
            if error is not None:
                found[name] = error
            elif size.exists:
                found[name] = of_size(size, counters)
        return found

    def _foreign(self, link: ServerLink, names: Sequence[str]) -> dict[str, Numbers | Exception]:
        family = self.address.key_family
        live: LiveFamily | None = family.live(self.address.prefix, DEFAULT_PREFIX)
        if live is None:
            raise UsageError(f"queues of {family.name} can't be watched; ferryman queues reads them")
        steering = family.steering(self.address.prefix)
        pauses = [] if steering is None else [call for name in names if (call := steering.paused(name)) is not None]
        outcomes = link.outcomes([*(live.size(name) for name in names), *pauses])
        paused = outcomes[len(names) :] or [False] * len(names)
        found: dict[str, Numbers | Exception] = {}
        for name, size, is_paused in zip(names, outcomes, paused, strict=False):
            found[name] = size if isinstance(size, Exception) else self._of(size, is_paused=is_paused is True)
        return found

    def _of(self, size: Size, *, is_paused: bool) -> Numbers:
        numbers = of_size(evolve(size, paused=is_paused), {})
        if self.address.family in TELLS_DEAD:
            return numbers
        told = (State.WAITING, State.SCHEDULED, State.ACTIVE, State.BLOCKED)
        return evolve(numbers, states={state: numbers.number(state) for state in told})


def _rates(before: Look | None, now: Look) -> dict[str, Mapping[str, float]]:
    """What has come and gone a second."""
    seconds = 0.0 if before is None else now.at - before.at
    if before is None or seconds <= 0:
        return {}
    rates: dict[str, Mapping[str, float]] = {}
    for queue, numbers in now.found.items():
        then = before.found.get(queue)
        if isinstance(numbers, Numbers) and isinstance(then, Numbers) and numbers.counters and then.counters:
            came = numbers.counters.get("published", 0) - then.counters.get("published", 0)
            went = numbers.counters.get("acked", 0) - then.counters.get("acked", 0)
            # A queue that was deleted and made anew counts from 0.
            rates[queue] = {"in": max(0, came) / seconds, "out": max(0, went) / seconds}
    return rates
