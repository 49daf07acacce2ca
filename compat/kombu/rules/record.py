"""The rules of kombu keyspaces about what a message says, alone. Collected by the package."""

from __future__ import annotations

from collections.abc import Iterator

from ....schema.family import Keyspace
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import show, to_bytes
from ...overflow import about_overflow
from ...rulebook import Rulebook
from ..passthrough import HEADER
from ..record import task_of, unreadable
from ..view import View, text_of, view_of

book: Rulebook[View] = Rulebook(view_of)


@book.about_jobs(
    "KOMBU-1",
    "Every entry is a message that a consumer can take; otherwise it is not carried",
    Severity.ERROR,
    Harm.POISON,
    repair="take the entry out of its key, and see what had put it there",
    refuses=True,
)
def is_message(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.fault is not None and view.message_fact is not None:
        effect = "the consumer that pops it stops, and the entry is gone" if view.waiting else "whoever restores it stops"
        yield view.violation(f"{view.fault} ({show(text_of(view.message_fact), 60)}): {effect}")


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


def _overflow(view: View) -> bytes | None:
    """The text in the header of ours; an application's own may be anything."""
    raw = None if view.message is None else view.message.headers.get(HEADER)
    return to_bytes(raw) if isinstance(raw, str) else None


about_overflow(book, "KOMBU-11", _overflow)
