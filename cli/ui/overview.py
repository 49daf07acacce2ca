"""Overview: every keyspace of the database, with its numbers, and the server. ``/``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import redis
from attrs import evolve, frozen
from starlette.responses import Response

from ...migrations.detect import Detected, Detection, detect
from ...operations import numbers
from ...schema.connection.address import Address
from ...schema.connection.connect import open_client
from ...schema.errors import FerrymanError, UnknownFamily
from ...schema.family import get_family
from ...schema.job import State
from .background import Look
from .render import link
from .view import View, keyspace_query

MAX_AGE_S = 60.0
"""A look at the database is made anew after so long."""
MOST_QUEUES = 2_000
"""A keyspace with more queues is not added up here."""


@frozen
class Keyspace:
    """One keyspace."""

    found: Detected
    title: str
    states: Mapping[State, int] | None
    """None where they are not told by few commands."""

    @property
    def jobs(self) -> int:
        """All of its jobs, those that can be counted exactly or by a sample."""
        return self.found.jobs if self.states is None else sum(self.states.values())

    def link(self, path: str) -> str:
        """A page about this keyspace."""
        return link(path, keyspace_query(self.found.family, self.found.prefix))


@frozen
class Overview:
    """What was found in the database."""

    detection: Detection
    keyspaces: Sequence[Keyspace]


def look(view: View, patience_s: float = 0.2) -> Look[Overview]:
    """What the database holds, as it was found last."""
    address = view.settings.address
    max_age_s = 0.0 if view.get("again") else MAX_AGE_S
    return view.shared.background.fresh(("overview",), lambda _look: _find(address), max_age_s, patience_s)


def page(view: View) -> Response:
    """The page."""
    found = look(view)
    if view.get("again"):
        return view.back("/")
    return view.page("overview", look=found, server=_server(view.settings.address), states=list(State))


def _find(address: Address) -> Overview:
    detection = detect(address)
    return Overview(detection, [_keyspace(address, each) for each in detection.keyspaces])


def _keyspace(address: Address, found: Detected) -> Keyspace:
    try:
        title = get_family(found.family).title
    except UnknownFamily:
        title = found.family
    own = evolve(address, family=found.family, prefix=found.prefix, settings=()).of_keyspace()
    states: Counter[State] | None = None
    if found.fits and len(found.queues) <= MOST_QUEUES and numbers.is_brief(own):
        try:
            states = Counter()
            for each in numbers.look(own).values():
                if not isinstance(each, Exception):
                    states.update(each.states)
        except FerrymanError:  # of one keyspace of several: its own pages tell why
            states = None
    return Keyspace(found, title, states)


def _server(address: Address) -> Mapping[str, Any]:
    """What the server says of itself; nothing where the user may not ask."""
    with open_client(address) as client:
        try:
            info: Mapping[str, Any] = client.info()
        except redis.exceptions.NoPermissionError:
            return {}
        return info
