"""Jobs: the jobs of a queue that are in one state, newest or next first, a page after the other. ``/jobs``."""

from __future__ import annotations

from starlette.responses import Response

from ...migrations.large_fields import without_large_fields
from ...operations import pages
from ...operations.pages import Cursor
from ...schema.errors import UsageError
from ...schema.job import State
from ...schema.text import to_bytes
from .view import View

ROWS = 50
MOST_BYTES = 256 << 10
"""A job that is larger is listed without what makes it so."""
SHOWN_STATES = tuple(state for state in State if state is not State.UNKNOWN)


def page(view: View) -> Response:
    """The page."""
    queue = view.get("queue")
    if not queue:
        return view.page("jobs", queue="", state=None, found=None, newest=False, states=SHOWN_STATES, large={})
    state = chosen_state(view)
    newest = view.get("order") != "next"
    after = Cursor.parse(view.get("after")) if view.get("after") else Cursor()
    with without_large_fields(MOST_BYTES) as left_out:
        found = pages.page(view.address, queue, state, ROWS, after, newest=newest)
    large = {job.id: left_out.of_job(to_bytes(job.id)) for job in (found.jobs if found and left_out.fields else ())}
    return view.page("jobs", queue=queue, state=state, found=found, newest=newest, states=SHOWN_STATES, large=large)


def chosen_state(view: View) -> State:
    """The state that a page is about; those that wait if none is named. Raises UsageError."""
    word = view.get("state") or str(State.WAITING)
    try:
        return State(word)
    except ValueError:
        raise UsageError(f"{word!r} is no state; states are {', '.join(SHOWN_STATES)}") from None
