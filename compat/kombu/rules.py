"""The rules of kombu keyspaces, KOMBU-1 to KOMBU-10: numbers, harms and meaning up to 8 are those of the family's specification.

Steps, timeouts and names are options of each process and stand in no key, so what only the usual values call wrong is a
warning. Jobs stay at the source (``refuses``) when nobody could run them (KOMBU-1), when they would run twice or one of two
would be lost (KOMBU-3), when nothing tells their queue (KOMBU-4), or when they are due (KOMBU-10), unless the user accepts what
follows. Messages that are moving while they are read may break KOMBU-2 and KOMBU-3 for a moment. Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from attrs import evolve

from ...schema.errors import MalformedValue
from ...schema.rule import Harm, Keyspace, Rule, Severity, Violation
from ...schema.text import ago, show, span, to_bytes
from ..moments import moment
from ..rulebook import Rulebook
from .bindings import bindings_of, is_of_another_prefix, lane_of
from .keys import SEP, bucket_key, lane_parts, layout, settings_of, steps_of
from .reader import UNCLAIMED, is_foreign
from .record import Message, decode, task_of, unreadable
from .view import View, text_of, view_of

SWEEP_MS = 200_000
"""Consumers look for overdue messages every 100 s, ten at a time; what is twice as late, nobody looks at."""

ONE_PLACE = "A message waits once, or a consumer has it, but not both; only one of its copies is carried"

book: Rulebook[View] = Rulebook(view_of)


# About messages


@book.about_jobs(
    "KOMBU-1",
    "Every entry is a message that a consumer can take; otherwise it is not carried",
    Severity.ERROR,
    Harm.POISON,
    repair="take the entry out of its key, and see what had put it there",
    refuses=True,
)
def is_message(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.fault is not None and view.own is not None:
        effect = "the consumer that pops it stops, and the entry is gone" if view.waiting else "whoever restores it stops"
        yield view.violation(f"{view.fault} ({show(text_of(view.own), 60)}): {effect}")


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
        places = ", ".join(sorted({show(fact.key) for fact in view.waiting}))
        yield view.violation(f"waits {len(view.waiting)} times, in {places}: it will run as often")


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
    due_at = moment(task_of(view.message).get("eta"))
    taken_at = keyspace.now_ms if view.since is None else view.since * 1000
    visibility_ms = settings_of(keyspace).visibility_ms
    if due_at is not None and due_at > taken_at + visibility_ms:
        wait, timeout = span(due_at - taken_at), _duration(visibility_ms).removeprefix("an ")
        yield view.violation(f"due {wait} after it was taken: after each {timeout} another consumer takes it too, and all run it")


@book.about_jobs(
    "KOMBU-10",
    "When, how often and how long a task runs can be read; otherwise it is not carried",
    Severity.ERROR,
    Harm.POISON,
    refuses=True,
    assumes="with its headers as they are, due at once, and without a count or limit",
)
def is_readable_task(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    task = {} if view.message is None else task_of(view.message)
    wrong = unreadable(task) if isinstance(task.get("task"), str) else []
    if wrong:
        texts = ", ".join(f"{name} {show(str(task[name]), 40)!r}" for name in wrong)
        yield view.violation(f"{texts}: the worker that gets it drops it or stops")


def _duration(ms: int) -> str:
    return "an hour" if ms == 3_600_000 else f"{ms / 1000:g} s"


# About queues and the keyspace


@book.about_keyspace(
    "KOMBU-4",
    "Messages stand in queues that are consumed, and find one when they go back; otherwise those are not carried",
    Severity.WARNING,
    Harm.LOST,
    repair="rename the list to the queue that its messages name, or let a worker consume it",
)
def is_consumed(keyspace: Keyspace) -> Iterator[Violation]:
    totals = keyspace.totals
    for queue in totals.labels("sent by name"):
        is_known = queue in totals.names.get("bound", ()) or is_of_another_prefix(queue, totals) or lane_of(queue, totals)
        if not totals.sums["sent by name", queue] and not is_known:
            detail = f"{_waiting(keyspace, queue)} messages in a list that is bound to no exchange"
            yield Violation(
                f"{detail}, and none was sent to it by name: a renamed queue?", bucket_key(keyspace.prefix, queue, 0), queue
            )


def _waiting(keyspace: Keyspace, queue: str) -> int:
    return sum(
        length
        for (measure, label), length in keyspace.totals.maxima.items()
        if measure == "length" and lane_parts(label)[0] == queue
    )


@book.about_keyspace(
    "KOMBU-5",
    "No unacked message is older than the visibility timeout, and the lock of those who put them back ends by itself",
    Severity.ERROR,
    Harm.LATE,
    repair="delete the lock",
)
def lock_ends(keyspace: Keyspace) -> Iterator[Violation]:
    if keyspace.totals.maxima.get(("mutex ttl", ""), 0) < 0:
        yield Violation(
            "a lock without end: no unacked message ever goes back", layout(keyspace.prefix, settings_of(keyspace)).key("mutex")
        )


@book.about_keyspace(
    "KOMBU-7",
    "Messages are in buckets that consumers read",
    Severity.WARNING,
    Harm.LOST,
    repair="give every consumer the priority_steps of the producers",
)
def bucket_is_read(keyspace: Keyspace) -> Iterator[Violation]:
    settings, steps = settings_of(keyspace), steps_of(keyspace)
    for (measure, label), length in sorted(keyspace.totals.maxima.items()):
        queue, step = lane_parts(label) if measure == "length" else ("", 0)
        queue, step = lane_of(queue, keyspace.totals) or (queue, step)
        if step not in steps and not is_of_another_prefix(queue, keyspace.totals):
            detail = f"{length} messages in bucket {step}, which only consumers read whose priority_steps name it"
            yield Violation(detail, bucket_key(keyspace.prefix, queue, step, settings), queue)


@book.about_keyspace(
    "KOMBU-8",
    "Reply queues of remote control go with their owners",
    Severity.WARNING,
    Harm.LEAK,
    repair="delete the reply queues and their bindings while no remote control command runs",
)
def replies_are_read(keyspace: Keyspace) -> Iterator[Violation]:
    totals = keyspace.totals
    lasting = totals.sums["replies", "lasting"]
    if lasting:
        key = to_bytes(totals.samples["replies", "lasting"][0])
        yield Violation(f"{lasting} reply queues that nobody empties and that never expire, such as this one", key)
    bound = totals.sums["reply bindings", ""]
    if bound:
        key = layout(keyspace.prefix, settings_of(keyspace)).key("binding", exchange="reply.celery.pidbox")
        detail = f"{bound} reply queues are bound, more than remote control commands run at a time"
        yield Violation(detail, key, severity=Severity.WARNING if bound > 100 else Severity.INFO)


@book.about_keyspace("KOMBU-9", "Keys with a name of kombu's have its type and form", Severity.ERROR, Harm.LOST)
def keys_make_sense(keyspace: Keyspace) -> Iterator[Violation]:
    totals, names = keyspace.totals, layout(keyspace.prefix, settings_of(keyspace))
    for role in totals.labels("odd key"):
        for text in totals.samples["odd key", role]:
            if role.startswith("staged"):
                detail = "messages of a migration to here that was not finished: resume it, or delete the key"
            else:
                detail = f"has the wrong Redis type; a key of this name must be a {names.patterns[role].redis_types[0]}"
            yield Violation(detail, to_bytes(text))
    bound = totals.names.get("bound", ())
    for text in sorted(totals.names.get(UNCLAIMED, ())):
        queue, _, key = text.partition(SEP)
        if queue in bound:
            yield Violation(
                "has the wrong Redis type; a key of this name must be a list: it is bound as a queue", to_bytes(key), queue
            )
    for role in totals.labels("odd member"):
        for text in totals.samples["odd member", role]:
            yield Violation("holds members that are no bindings: publishing to this exchange fails", to_bytes(text))


def _of_own(rule: Rule) -> Rule:
    """The rule, silent about messages of a keyspace under another prefix: they are that one's affair."""
    check = rule.subject
    if check is None:
        return rule

    def of_own(view: View, keyspace: Keyspace) -> Iterator[Violation]:
        return iter(()) if is_foreign(view, keyspace.totals) else check(view, keyspace)

    return evolve(rule, subject=of_own)


RULES = tuple(sorted(map(_of_own, book.rules), key=lambda rule: int(rule.id.removeprefix("KOMBU-"))))
"""All rules in order. One number stands twice where a rule is about jobs and the keyspace, or keeps only some jobs back."""
