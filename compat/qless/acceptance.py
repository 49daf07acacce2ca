"""Acceptance: whether a glance at a job of qless is enough to tell that no rule can find anything in it.

Nearly all jobs wait in their queue, are scheduled, or have ended, each in the one place of its state, and wait for no other. Of
these each condition of the rules is asked once, in the order in which it costs least; whatever is unusual is left to the rules.
tests/compat/qless/test_acceptance.py holds every rule against it. Called by ``family.py``.
"""

from __future__ import annotations

from ...schema.family import Keyspace
from ..lua_json import is_json
from ..numbers import parse_int, parse_number
from ..overflow import FIELD
from .keys import RECENT_S, Generation, era_of
from .record import milliseconds
from .rules.placement import SLACK_S
from .rules.record import NEEDED
from .view import View

FIELDS = frozenset({b"jid", *NEEDED})
UNUSUAL = frozenset({b"id", b"history", b"grace", b"scheduled", FIELD})
"""What jobs of the first weeks have, what is left of an earlier state, and what other systems' jobs bring."""
ROLES = {"waiting": "work", "scheduled": "scheduled", "complete": "completed", "failed": "failed"}
"""Where jobs stand with these words for their states."""


def accepts(view: View, keyspace: Keyspace) -> bool:
    """Whether no rule can find anything in the job of which this is the view; False for what is no job."""
    fields, places = view.fields, view.places
    role = ROLES.get(view.word)
    if role is None or len(places) != 1 or places[0].role != role:
        return False
    if not fields.keys() >= FIELDS or not UNUSUAL.isdisjoint(fields):
        return False
    if view.held or view.slots or view.pending or view.dependencies or view.releasing_it or view.replies:
        return False
    return (
        _is_placed(view, keyspace)
        and _are_numbers_sound(view, keyspace)
        and view.stored.history is not None
        and len(view.stored.events) == len(view.stored.history)
        and _is_readable(view)
        and is_json(fields[b"data"], loose=True)
    )


def _is_placed(view: View, keyspace: Keyspace) -> bool:
    """Its place is one of its queue, or of its group, with a score that makes sense there."""
    (place,) = view.places
    match place.role:
        case "failed":
            return place.label == view.stored.group
        case "completed":
            return True
        case "scheduled":
            return place.role in view.by_role and milliseconds(place.score) is not None
    if "work" not in view.by_role or place.score is None:
        return False
    era, priority = era_of(keyspace), parse_number(view.fields[b"priority"])
    if priority is None or era.generation < Generation.JID:
        return False
    seconds = (place.score - priority) * 1e10
    return not RECENT_S[0] < (-seconds if era.lower_first else seconds) < RECENT_S[1]


def _are_numbers_sound(view: View, keyspace: Keyspace) -> bool:
    fields = view.fields
    if (
        parse_int(fields[b"retries"]) is None
        or parse_int(fields[b"remaining"]) is None
        or parse_number(fields[b"priority"]) is None
    ):
        return False
    expires, time = fields.get(b"expires"), fields.get(b"time")
    if expires and expires != b"0" and parse_number(expires) is None:
        return False
    if not time:
        return True
    put = parse_number(time)
    return put is not None and put <= keyspace.now_ms / 1000 + SLACK_S


def _is_readable(view: View) -> bool:
    """Its tags, failure and throttles can be read, and the sets of its tags are those in which it is."""
    stored = view.stored
    tags, failure = stored.tags, stored.failure
    if tags is None or failure is None or stored.throttles is None or milliseconds(failure.get("when", 0)) is None:
        return False
    return view.tagged.keys() == set(tags) if tags or view.tagged else True
