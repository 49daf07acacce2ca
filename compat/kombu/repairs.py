"""Repairs of kombu keyspaces: for each rule that commands can mend safely, the commands for one finding.

Little is safe while consumers may be alive: what they hold stands in their memory as well. What is no message, or is in two
places of which one may be done, only people can judge; which messages of a consumer that is gone go back, the user chooses.
Reading commands among the others name what must stand still beside what is written. Pure: whoever sends the commands makes sure
that nothing has changed meanwhile. Called by ``family.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from ...schema.choices import NO_CHOICES, Choices
from ...schema.errors import Unrepairable
from ...schema.fact import Subject
from ...schema.family import Command, Keyspace
from ...schema.rule import Finding
from ...schema.text import load_json, to_bytes
from .bindings import bindings_of
from .keys import bucket_key, layout, settings_of, steps_of
from .rules.placement import is_same_message
from .view import View, text_of, view_of

REPAIRABLE = frozenset({"KOMBU-2", "KOMBU-3", "KOMBU-5"})
"""The rules that have a repair. For single cases ``repair`` may still give no commands."""


CHOOSABLE = frozenset({"KOMBU-5"})
"""The rules whose repair asks what the user chooses."""


def repair(finding: Finding, subject: Subject | None, keyspace: Keyspace, choices: Choices = NO_CHOICES) -> list[Command]:
    """The commands that mend the finding; none where that is not safe. Raises Unrepairable with the reason."""
    match finding.rule:
        case "KOMBU-2" if subject is not None:
            return list(_index(view_of(subject), keyspace))
        case "KOMBU-3" if subject is not None:
            return list(_copies(view_of(subject)))
        case "KOMBU-5" if subject is not None:
            return list(_restored(view_of(subject), keyspace, choices))
        case "KOMBU-5":
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


def _restored(view: View, keyspace: Keyspace, choices: Choices) -> Iterator[Command]:
    """What kombu's own restore writes: the message runs next in each queue to which it goes, marked as delivered before."""
    queues = bindings_of(keyspace.totals).queues(view.exchange, view.routing_key)
    if view.held is None or view.message is None or not queues or view.copies:
        raise Unrepairable("it can't be read, has no queue to go to, or waits in one already")
    choices.check(keyspace.now_ms, None if view.since is None else view.since * 1000, None)
    value, _, _ = load_json(text_of(view.held))
    if isinstance(value.get("headers"), dict):
        value["headers"]["redelivered"] = True
        value["properties"]["delivery_info"]["redelivered"] = True
    tag, text = to_bytes(view.job_id), json.dumps(value)
    yield ("HDEL", view.held.key, tag)
    if view.index is not None:
        yield ("ZREM", view.index.key, tag)
    settings, step = settings_of(keyspace), view.step(steps_of(keyspace))
    yield from (("RPUSH", bucket_key(keyspace.prefix, queue, step, settings), text) for queue in queues)
