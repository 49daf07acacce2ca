"""Bindings: which exchange leads to which queue, as the binding tables of a keyspace tell it.

Needed for what stands in no list: an unacked message names its exchange and routing key, but not the queue from which it came.
A table's patterns are regular expressions that anybody may have written there, so they are never run: the routing key with its
wildcards says the same. Called by the reader, the rules and the writer.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from attrs import field

from ...schema.frozen import frozen
from ...schema.memo import remember_last
from ...schema.totals import Totals
from .keys import SEP

MEASURE = "bindings"
"""The registry in the totals."""


class Binding(NamedTuple):
    """One binding of a queue. ``pattern`` is empty but for topic exchanges."""

    exchange: str
    routing_key: str
    pattern: str

    def member(self, queue: str, sep: str = SEP) -> str:
        """The member of the binding table."""
        return sep.join((self.routing_key, self.pattern, queue))

    def matches(self, routing_key: str) -> bool:
        """Whether the exchange sends messages with this routing key here."""
        if not self.pattern:
            return self.routing_key == routing_key
        return _matches(self.routing_key.split("."), routing_key.split("."))


def default_bindings(queue: str) -> tuple[Binding, ...]:
    """How Celery binds a queue of which the settings say nothing: to an exchange of its own, of its own name."""
    return (Binding(queue, queue, ""),)


def register(totals: Totals, exchange: str, member: str, sep: str | None = None) -> bool:
    """Adds a member of an exchange's table to the totals. False if it is none: then publishing to the exchange fails.

    ``sep``: what stands between its parts; None where the member itself must tell.
    """
    parts = member.split(SEP if sep is None else sep)
    if len(parts) != 3:
        found = separator_in(member) if sep is None else None
        if found is None:
            return False
        parts = member.split(found)
        totals.name(SEPARATORS, [found])
    totals.name(MEASURE, [SEP.join((exchange, *parts))])
    totals.name("bound", [parts[2]])
    return True


SEPARATORS = "separators"
"""The registry of what stands, instead of SEP, between the parts of names: the option ``sep``."""

_RUN = re.compile(r"\W+")
_TOPIC = re.compile(r"(.*?)(\^.*\$)(.+)", re.DOTALL)
_STEP = re.compile("-?[1-9][0-9]{0,8}")


def separator_in(member: str) -> str | None:
    """What stands between routing key, pattern and queue in a member of a binding table; None where nothing can."""
    if len(member) > 4_000:
        return None
    topic = _TOPIC.fullmatch(member)
    if topic:
        head, pattern, tail = topic.groups()
        sizes = range(1, min(len(head), len(tail) - 1) + 1)
        found = {head[-size:] for size in sizes if tail.startswith(head[-size:]) and pattern == topic_pattern(head[:-size])}
    else:
        # Only topic exchanges have patterns, so it stands there twice.
        found = {sep for run in _RUN.findall(member) if len(run) <= LONGEST_RUN for sep in _twice_in(run)}
    fitting = [sep for sep in found if len(member.split(sep)) == 3 and member.split(sep)[2]]
    return fitting[0] if len(fitting) == 1 else None


LONGEST_RUN = 64
"""Characters between words in which a separator is looked for."""


def _twice_in(run: str) -> Iterator[str]:
    """The parts of a text that stand twice in a row."""
    for size in range(1, len(run) // 2 + 1):
        for start in range(len(run) - 2 * size + 1):
            if run[start : start + size] == run[start + size : start + 2 * size]:
                yield run[start : start + size]


def topic_pattern(routing_key: str) -> str:
    """The regular expression that kombu makes of a topic exchange's routing key."""
    words = ("".join(each if each in "#*" or each.isalnum() else "\\" + each for each in word) for word in routing_key.split("."))
    return "^" + r"\.".join({"*": r"[^\.]+", "#": ".*?"}.get(word, word) for word in words) + "$"


def bucket_of(queue: str, step: int, totals: Totals) -> tuple[str, int] | None:
    """The queue and the bucket of a list whose name is not the usual one; None for any other list.

    Either its name has another separator, or it is a bucket as kombu 4.6.8 named it. ``step``: the bucket by the usual separator.
    Of messages that were sent by name, the list itself tells (``reader.py``); here a binding table had to.
    """
    bound = totals.names.get("bound", ())
    if queue in bound:
        return None
    if step:
        unbraced = without_braces(queue)
        return None if unbraced is None or unbraced not in bound else (unbraced, step)
    for sep in sorted(totals.names.get(SEPARATORS, ())):
        name, _, bucket = queue.rpartition(sep)
        if name in bound and _STEP.fullmatch(bucket):
            return name, int(bucket)
    return None


def without_braces(queue: str) -> str | None:
    """The queue whose priority buckets kombu 4.6.8, and no other version, kept in lists with this name in braces."""
    return queue[1:-1] if len(queue) > 2 and queue[0] == "{" and queue[-1] == "}" else None


def is_of_another_prefix(queue: str, totals: Totals) -> bool:
    """Whether a list is no queue of this keyspace, but one of a keyspace under a prefix with which its name begins."""
    others = totals.names.get("other prefixes", ())
    return queue not in totals.names.get("bound", ()) and any(queue.startswith(other) for other in others)


@frozen
class Bindings:
    """All bindings of a keyspace but those of reply queues."""

    by_queue: Mapping[str, tuple[Binding, ...]] = field(factory=dict)
    by_exchange: Mapping[str, tuple[tuple[Binding, str], ...]] = field(factory=dict)

    @classmethod
    def of(cls, totals: Totals) -> Bindings:
        """The bindings that were registered."""
        by_queue: defaultdict[str, tuple[Binding, ...]] = defaultdict(tuple)
        by_exchange: defaultdict[str, tuple[tuple[Binding, str], ...]] = defaultdict(tuple)
        for text in sorted(totals.names.get(MEASURE, ())):
            exchange, routing_key, pattern, queue = text.rsplit(SEP, 3)
            binding = Binding(exchange, routing_key, pattern)
            by_queue[queue] += (binding,)
            by_exchange[exchange] += ((binding, queue),)
        return cls(dict(by_queue), dict(by_exchange))

    def queues(self, exchange: str, routing_key: str) -> list[str]:
        """The queues to which a message goes, by name."""
        if not exchange:
            return [routing_key]
        return sorted({queue for binding, queue in self.by_exchange.get(exchange, ()) if binding.matches(routing_key)})


bindings_of = remember_last(Bindings.of)
"""The bindings in complete totals, worked out once for all jobs."""


def _matches(pattern: list[str], words: list[str]) -> bool:
    """AMQP's wildcards: ``*`` is one word, ``#`` any number. By dynamic programming: no pattern takes long."""
    reachable = [True] + [False] * len(words)
    for part in pattern:
        if part == "#":
            first = reachable.index(True) if True in reachable else len(reachable)
            reachable = [position >= first for position in range(len(reachable))]
        else:
            fits = (part in ("*", word) for word in words)
            reachable = [False] + [before and fit for before, fit in zip(reachable, fits, strict=False)]
    return reachable[-1]
