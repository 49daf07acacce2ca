"""Exchanges and fanout of the native family: bindings, route versions, broadcast streams. One atomic script each.

Like ``queue_scripts.py`` this builds calls and never opens a connection. An exchange lives in another cluster slot than its
queues, so no script touches both: see ``QueueScripts.bump_routes`` for how a removed binding reaches the publishers. Called
by the transport and the command line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from attrs import evolve, field, frozen

from ...connection.call import Argument, Call, Command
from ...errors import MalformedValue, UsageError
from ...text import load_json, to_bytes, to_text
from .. import keys
from .loader import script
from .script_replies import result

T = TypeVar("T")


class Binding(NamedTuple):
    """One binding of an exchange: ``routing_key`` for direct exchanges, ``pattern`` as the transport made it for the others."""

    queue: str
    routing_key: str = ""
    pattern: str = ""

    @classmethod
    def parse(cls, raw: bytes) -> Binding | None:
        """The binding that a field of the exchange's hash names; None for a field that is none."""
        try:
            value = load_json(raw)
        except MalformedValue:
            return None
        match value:
            case [str() as queue, str() as routing_key, str() as pattern] if queue:
                return cls(queue, routing_key, pattern)
            case _:
                return None


@frozen
class Bindings:
    """The bindings of an exchange at one version, sorted. ``malformed``: how many fields were no binding and were left out.

    ``type``: what it was declared as, "" if it never was. ``alternate``: the exchange for what no queue of this one wants, or "".
    ``rest``: where those begin that are still to be read of very many, empty for none. ``before``: the version before this part
    was read.
    """

    version: int
    bindings: tuple[Binding, ...]
    malformed: int = 0
    type: str = ""
    alternate: str = ""
    before: int = 0
    rest: bytes = b""

    def with_part(self, part: Bindings) -> Bindings:
        """These with the next ones, which were read where ``rest`` said, and begin with the version of these."""
        bindings = self.bindings + part.bindings
        # A binding may come twice; once is enough to sort them.
        return evolve(
            part, bindings=bindings if part.rest else tuple(sorted(set(bindings))), malformed=self.malformed + part.malformed
        )


@frozen
class Exchanges:
    """The exchanges under one prefix. Raises as ``QueueScripts`` does; at maxmemory only ``fanout_publish`` raises
    PublishRefused.
    """

    prefix: str = field(default=keys.DEFAULT_PREFIX)

    def __attrs_post_init__(self) -> None:
        keys.check_prefix(self.prefix)

    def declare(
        self, exchange: str, exchange_type: str, alternate: str = "", auto_delete: bool = False, *, now: int | None = None
    ) -> Call[int]:
        """Declares an exchange, which goes with its last binding if ``auto_delete``. Gives the version after it.

        Raises ExchangeTypeError from the reply for one that has another type.
        """
        args = (to_bytes(exchange_type), to_bytes(alternate), 1 if auto_delete else "")
        return self._exchange("declare", exchange, now, args, int)

    # Bindings

    def bind(
        self,
        exchange: str,
        queue: str,
        routing_key: str = "",
        pattern: str = "",
        expires_ms: int | None = None,
        *,
        now: int | None = None,
    ) -> Call[int]:
        """Binds the queue, for ``expires_ms`` if given; binding again renews that. Gives the version after it."""
        expiry = "" if expires_ms is None else expires_ms
        return self._exchange("bind", exchange, now, (_field(Binding(queue, routing_key, pattern)), expiry), int)

    def unbind(
        self, exchange: str, queue: str, routing_key: str = "", pattern: str = "", *, now: int | None = None
    ) -> Call[bool]:
        """Removes a binding; False if there was none. Call ``QueueScripts.bump_routes(queue)`` after it."""
        binding = _field(Binding(queue, routing_key, pattern))
        return self._exchange("unbind", exchange, now, (binding,), lambda reply: bool(reply[0]))

    def unbind_all(self, exchange: str, bindings: Sequence[Binding], *, now: int | None = None) -> Call[int]:
        """Removes several bindings at once (a deleted queue's), some thousand at most; gives how many there were.

        Raises UsageError for none.
        """
        if not bindings:
            raise UsageError(f"exchange {exchange!r}: no binding given to remove")
        return self._exchange("unbind", exchange, now, tuple(map(_field, bindings)), lambda reply: int(reply[0]))

    def bindings(self, exchange: str, rest: bytes = b"", *, now: int | None = None) -> Call[Bindings]:
        """All bindings, without the expired ones, which are removed; of more than a thousand, a part.

        ``rest``: that of the last part. Where the next one has another version ``before`` than the last one has, something has
        changed in between: begin anew.
        """
        return self._exchange("bindings", exchange, now, (rest or b"0",), _bindings)

    def version(self, exchange: str) -> Command[int]:
        """The version of the exchange's bindings: never the same again after a change; 0 for an exchange without any.

        One plain command, because every publish asks. Where the key is damaged, the reply is the server's own error.
        """
        return Command(("HGET", keys.exchange(self.prefix, exchange), "version"), lambda reply: int(reply or 0))

    def delete(self, exchange: str, *, now: int | None = None) -> Call[int]:
        """Deletes the exchange's bindings; gives how many there were. A fanout exchange also needs ``fanout_delete``."""
        return self._exchange("delete", exchange, now, (), int)

    # Messages that no queue wants

    def count_unroutable(self, exchange: str, number: int = 1) -> Call[int]:
        """Counts messages that were dropped; gives the exchange's number after it."""
        return _call("exchange_unroutable", (keys.unroutable(self.prefix),), exchange, None, (to_bytes(exchange), number), int)

    def forget_unroutable(self, exchange: str) -> Command[int]:
        """Drops the number of a deleted exchange."""
        return Command(("HDEL", keys.unroutable(self.prefix), to_bytes(exchange)), int)

    def unroutable(self) -> Command[dict[str, int]]:
        """How many messages were dropped, by exchange; those of exchanges beyond the first thousand under "". One command."""
        return Command(("HGETALL", keys.unroutable(self.prefix)), _numbers)

    # Fanout

    def fanout_publish(
        self, exchange: str, message: bytes, maxlen: int, is_repeated: bool = False, *, now: int | None = None
    ) -> Call[bytes]:
        """Broadcasts a message; the stream keeps about ``maxlen``. Gives its stream id, b"" if no queue was bound to get it.

        ``is_repeated``: it may have been broadcast before, and is not again if it was; no two messages are the same bytes, as
        each carries its id. Readers use plain ``XREAD`` on ``keys.fanout(prefix, exchange)``; the frame stands in ``message``.
        """
        return self._fanout("publish", exchange, now, (maxlen, message, 1 if is_repeated else ""), bytes)

    def fanout_bind(self, exchange: str, queue: str, expires_ms: int | None = None, *, now: int | None = None) -> Call[bytes]:
        """Binds the queue and gives its cursor, the stream id after which to read. Binding again keeps the cursor."""
        return self._fanout("bind", exchange, now, (_name(queue), "" if expires_ms is None else expires_ms), bytes)

    def fanout_advance(
        self, exchange: str, queue: str, stream_id: bytes, expires_ms: int | None = None, *, now: int | None = None
    ) -> Call[bool]:
        """Moves the queue's cursor on to ``stream_id`` (never back). False if the queue is not bound any more: bind it again."""
        return self._fanout("advance", exchange, now, (_name(queue), stream_id, "" if expires_ms is None else expires_ms), bool)

    def fanout_unbind(self, exchange: str, queue: str, *, now: int | None = None) -> Call[bool]:
        """Removes the queue's cursor, and the stream with the last one. False if the queue was not bound."""
        return self._fanout("unbind", exchange, now, (_name(queue),), bool)

    def fanout_delete(self, exchange: str, *, now: int | None = None) -> Call[int]:
        """Unbinds every queue and deletes the stream; gives how many were bound."""
        return self._fanout("unbind", exchange, now, (), int)

    def _exchange(
        self, verb: str, exchange: str, now: int | None, args: tuple[Argument, ...], parse: Callable[[Any], T]
    ) -> Call[T]:
        return _call(f"exchange_{verb}", (keys.exchange(self.prefix, exchange),), exchange, now, args, parse)

    def _fanout(
        self, verb: str, exchange: str, now: int | None, args: tuple[Argument, ...], parse: Callable[[Any], T]
    ) -> Call[T]:
        both = (keys.fanout(self.prefix, exchange), keys.fanout_cursors(self.prefix, exchange))
        return _call(f"fanout_{verb}", both, exchange, now, args, parse)


def _call(
    name: str,
    all_keys: tuple[bytes, ...],
    exchange: str,
    now: int | None,
    args: tuple[Argument, ...],
    parse: Callable[[Any], T],
) -> Call[T]:
    moment = "" if now is None else now
    return Call(script(name), all_keys, (moment, *args), lambda reply: parse(result(reply, f"exchange {exchange!r}")))


def _name(queue: str) -> bytes:
    if not queue:
        raise UsageError("a queue's name must not be empty")
    return to_bytes(queue)


def _field(binding: Binding) -> str:
    _name(binding.queue)
    # ASCII, so that a name that is no valid Unicode still has one form.
    return json.dumps(binding, separators=(",", ":"))


def _numbers(reply: Any) -> dict[str, int]:
    # redis-py makes a dict of it, a bare connection does not.
    fields = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {to_text(name): int(number) for name, number in fields if number.isdigit()}


def _bindings(reply: Any) -> Bindings:
    version, fields, exchange_type, alternate, before, rest = reply
    found = [Binding.parse(raw) for raw in fields]
    good = sorted(binding for binding in found if binding is not None)
    malformed, rest = len(found) - len(good), b"" if rest == b"0" else rest
    return Bindings(version, tuple(good), malformed, to_text(exchange_type), to_text(alternate), before, rest)
