"""Repairs of kombu keyspaces: for each rule that commands can mend safely, the commands for one finding.

Little is safe while consumers may be alive: what they hold stands in their memory as well. What is no message, or is in two
places of which one may be done, only people can judge. Reading commands among the others name what must stand still beside what
is written. Pure: whoever sends the commands makes sure that nothing has changed meanwhile. Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...schema.fact import Subject
from ...schema.family import Command
from ...schema.rule import Finding, Keyspace
from ...schema.text import to_bytes
from .keys import layout, settings_of
from .rules import is_same_message
from .view import View, text_of, view_of

REPAIRABLE = frozenset({"KOMBU-2", "KOMBU-3", "KOMBU-5"})
"""The rules that have a repair. For single cases ``repair`` may still give no commands."""


def repair(finding: Finding, subject: Subject | None, keyspace: Keyspace) -> list[Command]:
    """The commands that mend the finding; none where that is not safe."""
    match finding.rule:
        case "KOMBU-2" if subject is not None:
            return list(_index(view_of(subject), keyspace))
        case "KOMBU-3" if subject is not None:
            return list(_copies(view_of(subject)))
        case "KOMBU-5" if subject is None:
            mutex = layout(keyspace.prefix, settings_of(keyspace)).key("mutex")
            return [("GET", mutex), ("DEL", mutex)]
    return []


def _index(view: View, keyspace: Keyspace) -> Iterator[Command]:
    names, tag = layout(keyspace.prefix, settings_of(keyspace)), to_bytes(view.job_id)
    if view.held is None and view.index is not None:
        is_usual = view.index.key == names.key("index")
        yield ("HEXISTS", names.key("unacked") if is_usual else view.index.key.removesuffix(b"_index"), tag)
        yield ("ZREM", view.index.key, tag)
    else:
        # As if it had been taken now: it goes back after a visibility timeout, unless its consumer acks it.
        yield ("ZADD", names.key("index"), repr(keyspace.now_ms / 1000), tag)


def _copies(view: View) -> Iterator[Command]:
    """Takes copies out of the lists but the one that runs first: copies of one text leave a list from the end that runs last."""
    if view.message is None or view.claims or not all(is_same_message(view.message, text_of(fact)) for fact in view.waiting):
        return
    for fact in view.waiting[1:]:
        yield ("LREM", fact.key, 1, text_of(fact))
