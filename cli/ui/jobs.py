"""Jobs: the jobs of a queue in one state, newest or next first, those that a filter fits; or one by its id. ``/jobs``."""

from __future__ import annotations

from starlette.responses import Response

from ...migrations.large_fields import LeftOut, without_large_fields
from ...migrations.probes import clock_ms
from ...operations import pages
from ...operations.lookup import Found, lookup
from ...operations.pages import Cursor
from ...schema.connection.connect import open_client
from ...schema.errors import UsageError
from ...schema.job import Job, State
from ...schema.steering import JobFilter
from ...schema.text import to_bytes
from . import filters
from .background import Look
from .steer import possible
from .view import View

ROWS = 50
MOST_BYTES = 256 << 10
"""A job that is larger is listed without what makes it so."""
PATIENCE_S, LONG_PATIENCE_S = 0.15, 5.0
"""How long a page looks for jobs that fit: at first, and for who asks it to look further."""
FIND_AGAIN_S = 5.0
SHOWN_STATES = tuple(state for state in State if state is not State.UNKNOWN)
IN_LINE = frozenset({State.WAITING, State.SCHEDULED, State.BLOCKED})
"""States in which jobs have a next one; of others the order is that in which they came."""


def page(view: View) -> Response:
    """The page."""
    if view.get("find"):
        look = _find(view, view.get("find").strip())
        if look.found is not None and len(look.found.jobs) == 1 and not look.is_running:
            job = look.found.jobs[0].job
            return view.back(view.link("/job", queue=job.queue, id=job.id))
        return view.page("found", look=look, wanted=view.get("find"))
    queue = view.get("queue")
    if not queue:
        return view.page("jobs", queue="", state=None, filters={}, names=filters.FILTERS)
    state, newest = chosen_state(view), view.get("order") != "next"
    after = Cursor.parse(view.get("after")) if view.get("after") else Cursor()
    chosen = filters.job_filter(view)
    with without_large_fields(MOST_BYTES) as left_out:
        found = _page(view, queue, state, chosen, after, newest=newest)
    return view.page(
        "jobs",
        queue=queue,
        state=state,
        found=found,
        newest=newest,
        states=SHOWN_STATES,
        in_line=state in IN_LINE,
        large=_sizes(left_out, found.jobs if found else ()),
        filters=filters.said(view),
        names=filters.FILTERS,
        looked_at=found.looked_at if isinstance(found, filters.Filtered) else None,
        is_paged=bool(view.get("after")),
        able=any(state in states for states in possible(view).actions.values()),
    )


def _page(
    view: View, queue: str, state: State, chosen: JobFilter, after: Cursor, *, newest: bool
) -> pages.Page | filters.Filtered | None:
    if chosen == JobFilter():
        return pages.page(view.address, queue, state, ROWS, after, newest=newest)
    with open_client(view.address) as client:
        now_ms = clock_ms(client)
    patience = LONG_PATIENCE_S if view.get("further") else PATIENCE_S
    return filters.filtered(view.address, queue, state, chosen, ROWS, after, newest=newest, now_ms=now_ms, patience_s=patience)


def _sizes(left_out: LeftOut, jobs: tuple[Job, ...]) -> dict[str, int]:
    """How many bytes were left out of which jobs."""
    if not left_out.fields:
        return {}
    found = {job.id: left_out.of_job(to_bytes(job.id)) for job in jobs}
    return {job_id: large[2] for job_id, large in found.items() if large is not None}


def _find(view: View, wanted: str) -> Look[Found | None]:
    """The jobs with this id, or of the Celery task with this id."""
    address, queue = view.address, view.get("queue")

    def find(_look: Look[Found | None]) -> Found | None:
        with without_large_fields(MOST_BYTES):
            return lookup(address, [wanted], [queue] if queue else None)

    return view.shared.background.fresh(("find", *view.keyspace, queue, wanted), find, FIND_AGAIN_S)


def chosen_state(view: View) -> State:
    """The state that a page is about; those that wait if none is named. Raises UsageError."""
    word = view.get("state") or str(State.WAITING)
    try:
        return State(word)
    except ValueError:
        raise UsageError(f"{word!r} is no state; states are {', '.join(SHOWN_STATES)}") from None
