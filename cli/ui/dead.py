"""Dead: failed jobs that failed alike, by queue, reason, task and error; a group can be acted on as a whole. ``/dead``."""

from __future__ import annotations

from starlette.responses import Response

from ...operations.dead_groups import DeadGroups, dead_groups
from .background import Look
from .view import View

MAX_AGE_S = 20.0
ROWS = 200


def page(view: View) -> Response:
    """The page."""
    look = _look(view, 0.0 if view.get("again") else MAX_AGE_S)
    if view.get("again"):
        return view.back(view.link("/dead", queue=view.get("queue")))
    groups = look.found.groups if look.found else ()
    chosen = view.get("queue")
    shown = [group for group in groups if not chosen or group.place.queue == chosen]
    return view.page("dead", look=look, groups=shown[:ROWS], more=len(shown[ROWS:]))


def _look(view: View, max_age_s: float) -> Look[DeadGroups]:
    address = view.address

    def find(look: Look[DeadGroups]) -> DeadGroups:
        def progress(read: int, total: int) -> None:
            look.progress = f"{read:,} of {total:,} read"

        return dead_groups(address, progress)

    return view.shared.background.fresh(("dead", *view.keyspace), find, max_age_s)
