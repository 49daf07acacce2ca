"""The rules of kombu keyspaces about where a message stands: in lists, or with a consumer, and for how long.

Collected by the package.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....schema.errors import MalformedValue
from ....schema.family import Keyspace
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import ago, show, span
from ...rulebook import Rulebook
from ...timestamps import parse_timestamp
from ..bindings import bindings_of
from ..keys import layout, settings_of
from ..record import Message, decode, task_of
from ..view import View, text_of, view_of

SWEEP_MS = 200_000
"""Consumers look for overdue messages every 100 s, ten at a time; what is twice as late, nobody looks at."""

ONE_PLACE = "A message waits once, or a consumer has it, but not both; only one of its copies is carried"

book: Rulebook[View] = Rulebook(view_of)


@book.about_jobs(
    "KOMBU-2",
    "The hash and the index of unacked messages agree",
    Severity.ERROR,
    Harm.LOST,
    repair="add the message to the index with the present time, so that it goes back; remove an index entry without message",
)
def is_held_and_indexed(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    names = layout(keyspace.prefix, settings_of(keyspace))
    if view.held is not None and view.index is None and view.held.key == names.key("unacked"):
        yield view.violation(f"not in {show(names.key('index'))}: should its consumer be gone, it never goes back to its queue")
    elif view.index is not None and view.held is None:
        yield view.violation(
            f"no message in {show(names.key('unacked'))}: swept for ever, without effect", severity=Severity.WARNING
        )


@book.about_jobs(
    "KOMBU-3",
    ONE_PLACE,
    Severity.ERROR,
    Harm.DUPLICATE,
    repair="remove one of the two, when it is clear whether the consumer is done",
    refuses=True,
)
def is_in_one_place(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.waiting:
        if view.claims:
            yield view.violation(f"waits, and a consumer has it in {show(view.claims[0].key)}: it will run twice")
        others = {text_of(fact) for fact in view.waiting} - {text_of(view.waiting[0])}
        if view.message is not None and not all(is_same_message(view.message, other) for other in others):
            yield view.violation(
                f"{len(others) + 1} different messages under one delivery tag: acking one of them loses the others"
            )
    elif view.message is not None and view.copies and view.queue_among(bindings_of(keyspace.totals)) is None:
        yield view.violation(f"a consumer has it, and it waits in {show(view.copies[0].key)}: it will run twice")


@book.about_jobs("KOMBU-3", ONE_PLACE, Severity.ERROR, Harm.DUPLICATE, repair="remove a copy")
def waits_once(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if len(view.waiting) > 1 and view.message is not None:
        keys = ", ".join(sorted({show(fact.key) for fact in view.waiting}))
        yield view.violation(f"waits {len(view.waiting)} times, in {keys}: it will run as often")


def is_same_message(message: Message, other: bytes) -> bool:
    """Whether a text is the same message, be it as it was before it was delivered."""
    try:
        found = decode(other)
    except MalformedValue:
        return False
    return (found.body, task_of(found).get("id")) == (message.body, task_of(message).get("id"))


@book.about_jobs(
    "KOMBU-4",
    "Messages stand in queues that are consumed, and find one when they go back; otherwise those are not carried",
    Severity.ERROR,
    Harm.LOST,
    repair="bind a queue to the exchange",
    refuses=True,
)
def can_go_back(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.message is None or view.waiting or view.copies:
        return
    if view.queue_among(bindings_of(keyspace.totals)) is None:
        way = f"exchange {show(view.exchange, 60)!r} with routing key {show(view.routing_key, 60)!r}"
        yield view.violation(f"{way} leads to no queue: nothing tells where it came from, and kombu drops it when it goes back")


@book.about_jobs(
    "KOMBU-5",
    "No unacked message is older than the visibility timeout, and the lock of those who put them back ends by itself",
    Severity.WARNING,
    Harm.LATE,
    repair="start a worker: its consumer puts the message back; or put it back (--older-than)",
)
def is_swept(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.since is None or view.held is None:
        return
    visibility_ms = settings_of(keyspace).visibility_ms
    back_at = view.since * 1000 + visibility_ms
    if keyspace.now_ms - back_at > SWEEP_MS:
        when, timeout = ago(back_at, keyspace.now_ms), _duration(visibility_ms)
        yield view.violation(f"should have gone back {when}, if the visibility timeout is {timeout}: nobody looks")


@book.about_jobs(
    "KOMBU-6",
    "A task that a consumer keeps until it is due is due within the visibility timeout",
    Severity.WARNING,
    Harm.DUPLICATE,
    repair="raise visibility_timeout in every process, or move to a broker that keeps delayed tasks itself",
)
def is_due_in_time(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    if view.message is None or view.waiting:
        return
    due_at = parse_timestamp(task_of(view.message).get("eta"))
    taken_at = keyspace.now_ms if view.since is None else view.since * 1000
    visibility_ms = settings_of(keyspace).visibility_ms
    if due_at is not None and due_at > taken_at + visibility_ms:
        wait, timeout = span(due_at - taken_at), _duration(visibility_ms).removeprefix("an ")
        yield view.violation(f"due {wait} after it was taken: after each {timeout} another consumer takes it too, and all run it")


def _duration(ms: int) -> str:
    return "an hour" if ms == 3_600_000 else f"{ms / 1000:g} s"
