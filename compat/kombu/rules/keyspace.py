"""The rules of kombu keyspaces about what belongs to no single message: queues, locks, keys. Collected by the package."""

from __future__ import annotations

from collections.abc import Iterator

from ....schema.family import Keyspace
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import to_bytes
from ....schema.totals import Totals
from ...rulebook import Rulebook
from ..bindings import bucket_of, is_of_another_prefix
from ..keys import SEP, bucket_key, layout, parse_bucket_label, settings_of, steps_of
from ..reader import UNCLAIMED
from ..view import View, view_of

book: Rulebook[View] = Rulebook(view_of)


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
        is_known = queue in totals.names.get("bound", ()) or is_of_another_prefix(queue, totals) or _is_bucket(queue, totals)
        if not totals.sums["sent by name", queue] and not is_known:
            detail = f"{_waiting(keyspace, queue)} messages in a list that is bound to no exchange"
            yield Violation(
                f"{detail}, and none was sent to it by name: a renamed queue?", bucket_key(keyspace.prefix, queue, 0), queue
            )


def _is_bucket(queue: str, totals: Totals) -> bool:
    return any(bucket_of(queue, step, totals) for step in (0, 1))


def _waiting(keyspace: Keyspace, queue: str) -> int:
    return sum(
        length
        for (measure, label), length in keyspace.totals.maxima.items()
        if measure == "length" and parse_bucket_label(label)[0] == queue
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
        queue, step = parse_bucket_label(label) if measure == "length" else ("", 0)
        queue, step = bucket_of(queue, step, keyspace.totals) or (queue, step)
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
