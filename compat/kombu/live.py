"""KombuLive: the stock Celery broker's keyspace in use, beside kombu's own processes. The calls of ``lua/``, and their replies.

What a job is here: a message in the buckets of its queue, with its headers and properties, as ``record.py`` has it. kombu has no
delays, no attempts and no failed jobs: an ``eta`` is Celery's workers' affair, ``retries`` is a header, and a message that is
rejected is gone. So ``complete``, ``fail`` and ``reject`` all end in ``removed``.

The lease of a consumer stands in side keys; what it has gets a new time in ``unacked_index`` whenever it is renewed, so that
kombu's processes, which know nothing of leases, never give back what runs (the theory stands in ``lua/_common.lua``). A message
that lapses more than ``delivery_limit`` times is left to the visibility timeout, and so comes back as slowly as with kombu alone.
``size`` knows as held what consumers of ours have: what kombu's own have names no queue. Results are for a result backend, of
which kombu knows nothing, and it has no place for progress.

Called by ``family.py``, the transport, ``client.py`` and the tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from attrs import frozen

from ...schema.connection.call import Argument, Call
from ...schema.errors import KeyspaceRefused, MalformedValue, Unroutable, UsageError
from ...schema.family import family_names, get_family
from ...schema.keys import glob_escape
from ...schema.live import Failure, ForeignDelivery, NewJob, Outcome
from ...schema.native.scripts import results
from ...schema.native.scripts.publication import optional
from ...schema.native.scripts.queue_scripts import FETCH_BYTES
from ...schema.native.scripts.results import Removed, Role
from ...schema.text import load_loose_json, show, to_bytes, to_text
from ..live import Retry, ScriptedFamily, outcome, texts
from .bindings import Binding, topic_pattern
from .keys import USUAL, Settings, bucket_key
from .outgoing import stamped

OPTIONS = frozenset({"exchange", "routing_key", "expires_ms", "bind"})
"""What ``put`` takes beside a job's own fields."""


@frozen
class KombuLive(ScriptedFamily):
    """The transitions of all queues under one ``global_keyprefix``."""

    name = "kombu"
    priority_direction = 1
    has_names = True
    carries_messages = True
    separator = ""

    prefix: str = ""
    side_prefix: str = "ferryman"
    settings: Settings = USUAL

    @cached_property
    def fixed(self) -> tuple[Argument, ...]:
        names = (self.settings.unacked_key, self.settings.unacked_index_key)
        steps = ",".join(map(str, self.settings.steps))
        return to_bytes(self.settings.separator), steps, *map(to_bytes, names), self.settings.visibility_ms

    def _queue(self, queue: str) -> bytes:
        if not queue:
            raise UsageError("a queue needs a name")
        return to_bytes(queue)

    # Before the first write

    def look(self) -> Call[None]:
        return self.on_keyspace("look", None, (glob_escape(self.prefix) + "*",), self._looked)

    def _looked(self, reply: Any) -> None:
        unacked, index, sample = reply
        for key, found, wanted in (
            (self.settings.unacked_key, unacked, b"hash"),
            (self.settings.unacked_index_key, index, b"zset"),
        ):
            if found not in (wanted, b"none"):
                raise KeyspaceRefused(
                    f"key {self.prefix + key!r} is a {show(found)} and not kombu's {show(wanted)}: if kombu calls its own "
                    "otherwise here, say so with unacked_key and unacked_index_key, else use another prefix"
                )
        types = dict(zip(sample[::2], sample[1::2], strict=True))
        own = to_bytes(self.prefix) + b"_kombu.binding"
        if unacked == b"hash" or index == b"zset" or any(key.startswith(own) for key in types):
            return
        for other in family_names():
            claimed = other != self.name and _claims(other, self.prefix, types)
            if claimed:
                raise KeyspaceRefused(
                    f"prefix {self.prefix!r} holds keys of {other}, such as {show(claimed)!r}, and none of kombu: "
                    f"use family={other}, or another prefix"
                )

    # Messages in

    def put(self, job: NewJob, *, now: int | None = None) -> Call[str]:
        """Publishes a message. ``payload`` is the JSON of all of it: ``body``, ``content-type``, ``content-encoding``,
        ``headers``, ``properties``; what kombu itself adds to ``properties`` (``delivery_tag``, ``delivery_info``, ``priority``)
        is added where it lacks.

        ``options``: ``exchange`` and ``routing_key``, to be routed by the keyspace's bindings instead of by the queue's name
        (raises Unroutable where they lead nowhere); ``expires_ms``, the ``x-expires`` of the queue; ``bind``: False leaves out
        the binding that Celery makes for each queue. With ``delay_ms`` the header ``eta`` says when the message is due.
        """
        unknown = set(job.options) - OPTIONS
        if unknown:
            raise UsageError(f"unknown option {sorted(unknown)[0]!r}: kombu's put takes {', '.join(sorted(OPTIONS))}")
        exchange = job.options.get("exchange") or ""
        routing_key = job.options.get("routing_key") or ("" if exchange else job.queue)
        if not exchange and not routing_key:
            raise UsageError("a message needs a queue, or an exchange and a routing key")
        text, tag, step = stamped(job, exchange, routing_key, self.settings.steps)
        expires = job.options.get("expires_ms")
        is_bound = not exchange and expires is None and job.options.get("bind", True)
        where = f"exchange {exchange!r}" if exchange else f"queue {routing_key!r}"
        args: tuple[Argument, ...] = (
            job.publication or "",
            text,
            to_bytes(tag),
            to_bytes(exchange),
            to_bytes(routing_key),
            step,
            job.delay_ms,
            "" if expires is None else int(expires),
            1 if is_bound else "",
        )
        return self.call("put", where, now, args, lambda reply: _routed(reply, exchange, routing_key))

    # Consuming

    def _delivery(self, queue: str, *job: Any) -> ForeignDelivery:
        return _delivery(queue, *job)

    def _end_attempt(
        self, queue: str, consumer: str, job_id: str, failure: Failure, retry: Retry | None, now: int | None
    ) -> Call[Outcome]:
        """Acks a message that has failed, as Celery does: kombu has no place for it. A retry is as Celery's own: the header
        ``retries`` counts one more, ``eta`` says when it is due; how many there may be is the task's affair. Its payload is the
        whole message that takes the place of this one.
        """
        if retry is None:
            return self.by_consumer("complete", queue, consumer, now, (to_bytes(job_id),), lambda reply: outcome(reply[0]))
        text = b"" if retry.payload is None else stamped(NewJob(queue, retry.payload), "", queue, self.settings.steps)[0]
        return self.by_consumer("retry", queue, consumer, now, (to_bytes(job_id), retry.delay_ms, text), outcome)

    def upcoming(self, queue: str, limit: int, *, fetch_bytes: int = FETCH_BYTES) -> None:
        """None: kombu holds no message until its time."""

    def remove(self, queue: str, job_id: str, only: Role | None = None, *, now: int | None = None) -> Call[Removed | None]:
        """Looks at 20,000 messages, those that run next first."""
        name = job_id if only in (None, "waiting") else ""
        return self.on_queue("remove", queue, now, (to_bytes(name),), results.removed)

    def peek(self, queue: str, n: int = 1, *, now: int | None = None) -> Call[tuple[bytes, ...]]:
        """The messages that run next, whole, without taking them."""
        return self.on_queue("peek", queue, now, (n,), tuple)

    # Bindings

    def bind(
        self,
        queue: str,
        exchange: str,
        routing_key: str,
        *,
        topic: bool = False,
        expires_ms: int | None = None,
        now: int | None = None,
    ) -> Call[bool]:
        """Binds a queue to an exchange as kombu does. ``topic``: the routing key has wildcards; ``expires_ms``: the queue's
        ``x-expires``."""
        life = "" if expires_ms is None else max(2 * int(expires_ms), MIN_BINDING_TTL)
        return self._bound("bind", queue, exchange, routing_key, topic, life, now)

    def unbind(self, queue: str, exchange: str, routing_key: str, *, topic: bool = False, now: int | None = None) -> Call[bool]:
        """Takes a binding away."""
        return self._bound("unbind", queue, exchange, routing_key, topic, "", now)

    def queues_bound(self, exchange: str, routing_key: str, *, now: int | None = None) -> Call[tuple[str, ...]]:
        args = (to_bytes(exchange), to_bytes(routing_key))
        return self.call("queues_bound", f"exchange {exchange!r}", now, args, texts)

    def _bound(
        self, verb: str, queue: str, exchange: str, routing_key: str, topic: bool, life: Argument, now: int | None
    ) -> Call[bool]:
        pattern = topic_pattern(routing_key) if topic else ""
        member = Binding(exchange, routing_key, pattern).member(queue, self.settings.separator)
        return self.call("bind", f"exchange {exchange!r}", now, (to_bytes(exchange), to_bytes(member), verb, life), bool)

    # The system's own clockwork

    def timers(self, *, delivery_limit: int | None = None, now: int | None = None) -> Sequence[Call[Any]]:
        return (self.on_keyspace("timers", now, (optional(delivery_limit),), bool),)

    def signals(self, queue: str) -> tuple[bytes, ...]:
        """The lists of the queue's buckets."""
        return tuple(bucket_key(self.prefix, queue, step, self.settings) for step in self.settings.steps)

    def schedules(self, queue: str) -> tuple[bytes, ...]:
        """A message with an ``eta`` is in its list at once."""
        return ()


MIN_BINDING_TTL = 3_600_000
"""The shortest life of a binding table of expiring queues without a consumer, ms (kombu 5.7)."""


def _claims(family: str, prefix: str, types: Mapping[bytes, bytes]) -> bytes | None:
    """A key that another family would say is its own under this very prefix, to which some add a colon by themselves."""
    known, prefixes = get_family(family), {prefix, prefix.removesuffix(":") or prefix}
    return next((key for key, kind in types.items() if not prefixes.isdisjoint(known.prefixes(key, to_text(kind)))), None)


def _routed(reply: Any, exchange: str, routing_key: str) -> str:
    tag, queues = reply
    if not queues:
        raise Unroutable(f"no queue is bound to exchange {exchange!r} for routing key {routing_key!r}: bind one first")
    return to_text(tag)


def _delivery(queue: str, tag: bytes, text: bytes) -> ForeignDelivery:
    """What a message says of itself. As stock workers do, it takes NaN for a number.

    A script has parsed the message, but by laxer rules than JSON's. If it can't be read here, the delivery has the text alone,
    and the channel reports the error: an error here would hold up all other messages of the take.
    """
    try:
        message = load_loose_json(text)
    except MalformedValue:
        return ForeignDelivery(to_text(tag), 0, 0, 1, {}, queue=queue, payload=text)
    headers, properties = message.get("headers") or {}, message["properties"]
    lapses, task = _count(headers.get("x-delivery-count")), headers.get("task")
    was_delivered = bool(properties["delivery_info"].get("redelivered"))
    return ForeignDelivery(
        id=to_text(tag),
        score=0,
        priority=_count(properties.get("priority")),
        deliveries=max(lapses, int(was_delivered)) + 1,
        fields={},
        queue=queue,
        name=task if isinstance(task, str) else None,
        payload=text,
        attempts=_count(headers.get("retries")),
    )


def _count(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and abs(value) < 2**53 else 0
