"""View: the facts about one message, sorted by what the reader and the rules ask for.

A message in a list is told by its queue and its delivery tag, one that a consumer has by its tag alone: the keys of unacked
messages name no queue. So both are subjects of their own, and leave notes with each other: a ``claim`` tells the message of a
list that a consumer has it, a ``copy`` tells the message of a consumer in which list it is as well. Called by ``reader.py`` and
the rules, which share one view of a subject.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import define, field

from ...schema.errors import MalformedValue
from ...schema.fact import Fact, Subject
from ...schema.memo import remember_last
from ...schema.rule import Severity, Violation
from .bindings import Bindings
from .record import Message, Record, decode, decode_delivery


@define
class View:
    """What all keys say about one message."""

    job_id: str
    queue: str
    """The queue of a message in a list; empty for one that a consumer has."""
    waiting: list[Fact] = field(factory=list)
    """Where it stands in lists, in the order in which it would be popped: mostly once."""
    held: Fact | None = None
    """Its entry in the hash of unacked messages."""
    index: Fact | None = None
    """Its entry in the index of unacked messages."""
    claims: list[Fact] = field(factory=list)
    copies: list[Fact] = field(factory=list)
    message: Message | None = None
    """None if there is none, or none that a consumer could take."""
    fault: str | None = None
    """Why a consumer can't take it."""
    exchange: str = ""
    routing_key: str = ""
    """Where a message that a consumer has would go back."""

    @classmethod
    def of(cls, subject: Subject) -> View:
        """The view of a subject."""
        view = cls(subject.job_id, subject.scope)
        for fact in sorted(subject.facts, key=_order):
            match fact.role:
                case "waiting":
                    view.waiting.append(fact)
                case "unacked":
                    view.held = view.held or fact
                case "index":
                    view.index = fact if view.index is None or fact.label is None else view.index
                case "claim":
                    view.claims.append(fact)
                case "copy":
                    view.copies.append(fact)
        view._decode()
        return view

    def _decode(self) -> None:
        try:
            if self.waiting:
                self.message = decode(text_of(self.waiting[0]))
            elif self.held is not None:
                self.message, self.exchange, self.routing_key = decode_delivery(text_of(self.held))
        except MalformedValue as error:
            self.fault = str(error)

    @property
    def message_fact(self) -> Fact | None:
        """The fact that holds the message."""
        return self.waiting[0] if self.waiting else self.held

    def step(self, steps: Sequence[int]) -> int:
        """The bucket in which it stands; for one that a consumer has, the one of these to which it would go back."""
        if self.waiting:
            return step_in(self.waiting[0])
        return self.message.step(steps) if self.message else 0

    @property
    def other_prefix(self) -> str | None:
        """The prefix to which the keys would belong that say a consumer has it, if it is one's of another keyspace."""
        fact = None if self.waiting else self.held or self.index
        return fact.label if fact else None

    @property
    def since(self) -> float | None:
        """When a consumer took it, in seconds."""
        return self.index.score if self.index else None

    def record(self, message: Message) -> Record:
        """The message as it stands."""
        return Record(message, held=not self.waiting, since=None if self.waiting else self.since)

    def queue_among(self, bindings: Bindings) -> str | None:
        """Its queue; None for a message of a consumer that can have come from none, or is in all of them again."""
        if self.waiting:
            return self.queue
        copies = {fact.queue for fact in self.copies}
        return next((queue for queue in bindings.queues(self.exchange, self.routing_key) if queue and queue not in copies), None)

    def violation(self, detail: str, *, fact: Fact | None = None, severity: Severity | None = None) -> Violation:
        """What a rule says about this message."""
        fact = fact or self.message_fact or self.index
        return Violation(detail, fact.key if fact else b"", self.queue or self.routing_key or None, severity)


def text_of(fact: Fact) -> bytes:
    """The JSON text that a fact about a message holds."""
    return fact.values[1]


def step_in(fact: Fact) -> int:
    """The bucket that a fact about a list names."""
    return int(fact.label or 0)


def _order(fact: Fact) -> tuple[int, int, bytes]:
    """Pop order: lower buckets first, in each from the tail of its list. All else by key, so that engines agree."""
    waiting = fact.role == "waiting"
    return (step_in(fact) if waiting else 0, -(fact.index or 0) if waiting else 0, fact.key)


view_of = remember_last(View.of)
"""The view of a subject, made once for the reader and all rules."""
