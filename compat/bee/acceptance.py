"""Acceptance: whether a glance at a job of bee is enough to tell that no rule can find anything in it.

Nearly all jobs wait in their queue, are delayed, or have ended, each in the one set of its status, and refer to no other.
Of these each condition of the rules is asked once, the cheapest first; whatever is unusual is left to the rules.
tests/compat/bee/test_acceptance.py holds every rule against it. Called by ``family.py``.
"""

from __future__ import annotations

from itertools import pairwise

from ...schema.family import Keyspace
from ...schema.text import to_bytes, to_text
from .. import lua_json
from ..numbers import parse_int
from ..overflow import FIELD
from .keys import EARLIEST_TIME
from .rules.placement import OVERDUE_MS
from .rules.record import NEEDED, USUAL, wrong_options
from .view import View

FIELDS = frozenset({b"jid", *NEEDED, *USUAL})
ROLE_AND_LAST_EVENT = {
    "queued": ("queue", "queued"),
    "new": ("delayed", "delayed"),
    "retried": ("delayed", "delayed"),
    "completed": ("expires", "completed"),
    "failed": ("expires", "failed"),
}
"""Of the statuses of these jobs: the role of their set, and the event with which their history ends."""
ENDS = frozenset({"completed", "failed"})
LATEST_TIME = 10**17
"""A score from here on is left to the rules, ms."""


def accepts(view: View, keyspace: Keyspace) -> bool:
    """Whether no rule can find anything in the job of which this is the view."""
    fields, record = view.fields, view.record
    usual = ROLE_AND_LAST_EVENT.get(view.status)
    if usual is None or record is None or record.ttl_ms is not None or len(view.places) != 1:
        return False
    if not fields.keys() >= FIELDS or FIELD in fields or fields[b"jid"] != to_bytes(view.job_id):
        return False
    if view.held or view.waits or view.dependencies or view.expected or view.awaited or view.original is not None:
        return False
    role, last_event = usual
    return (
        _is_placed(view, role, keyspace.now_ms)
        and _is_linked(view)
        and _is_told(view, last_event)
        and _are_options_sound(view)
        and lua_json.is_json(fields[b"data"])
        and (b"result" not in fields or lua_json.is_json(fields[b"result"]))
        and (b"dependants" not in fields or lua_json.as_list(fields[b"dependants"]) is not None)
    )


def _is_placed(view: View, role: str, now_ms: int) -> bool:
    """It stands in the set of its status, of its queue, with a score that is a time there."""
    (place,) = view.places
    score = place.score
    if place.role != role or place.queue != view.queue or score is None:
        return False
    first, last = EARLIEST_TIME, LATEST_TIME
    if role == "queue":
        last = now_ms + 1000
    elif role == "expires":
        first = max(first, now_ms - OVERDUE_MS)
    return first <= score <= last


def _is_linked(view: View) -> bool:
    """What it says of its hash, its tags and its parent, the keys of these say as well."""
    own, raw_tags, parent = view.unique_list, view.fields[b"tags"], view.fields.get(b"parent")
    if [fact.label for fact in view.lists] != ([] if own is None else [own]):
        return False
    if raw_tags != b"{}" and lua_json.as_list(raw_tags) is None:
        return False
    if (view.tagged or raw_tags != b"{}") and {fact.label for fact in view.tagged} != set(view.tags):
        return False
    return not view.child_of if parent is None else {fact.label for fact in view.child_of} == {to_text(parent)}


def _is_told(view: View, last_event: str) -> bool:
    """Its history ends as its status does, and it has ended once at most, in the hands of a worker."""
    fields = view.fields
    if parse_int(fields[b"submitted"]) is None or lua_json.as_list(fields[b"history"]) is None:
        return False
    happened = view.events
    if happened[-1:] != [last_event] or "canceled" in happened:
        return False
    if "completed" in happened and (last_event != "completed" or happened.count("completed") > 1):
        return False
    return view.is_unfinished or all(before != "queued" or after not in ENDS for before, after in pairwise(happened))


def _are_options_sound(view: View) -> bool:
    """bee can count with them, and the job was not tried more often than they allow."""
    options, made = view.options, parse_int(view.fields[b"retries"])
    return (
        options is not None and made is not None and not wrong_options(options, blocked=False) and 0 <= made <= options["retries"]
    )
