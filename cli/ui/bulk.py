"""Bulk: an action on all jobs that match, in the server. ``/bulk``: how many they are; when it is confirmed, how far it is.

It goes on when the page is closed, and only one runs on a queue at a time.
"""

from __future__ import annotations

from collections.abc import Callable

from attrs import frozen
from starlette.responses import Response

from ...operations.steering import Bulk, Progress, open_steering
from ...schema.errors import UsageError
from ...schema.job import State
from ...schema.steering import Action, JobFilter, Value
from .acting import value_of
from .background import Look
from .filters import FILTERS, job_filter, said
from .jobs import chosen_state
from .notices import Notice
from .steer import check_can_act, not_told, opened, possible
from .view import View

ACTIONS = (Action.REQUEUE, Action.PROMOTE, Action.CANCEL, Action.REPRIORITISE, Action.MOVE, Action.DELETE)


@frozen
class Matching:
    """What a page or a form is about."""

    queue: str
    state: State
    chosen: JobFilter

    @property
    def key(self) -> tuple[str, ...]:
        """Names the look that counts them."""
        return (self.queue, str(self.state), repr(self.chosen))


def page(view: View) -> Response:
    """How many match, and what can be done to them; or how far it is."""
    matching = matching_of(view)
    count = _count(view, matching) if view.can_act else None
    running = _running(view, matching.queue).seen()
    able = possible(view)
    return view.page(
        "bulk",
        matching=matching,
        count=count,
        running=running,
        possible=able,
        not_told=not_told(view, Action.CANCEL),
        actions=[action for action in ACTIONS if able.fits(action, matching.state)],
        filters=said(view),
        names=FILTERS,
    )


def confirmed(view: View) -> Response:
    """Begins."""
    check_can_act(view)
    matching = matching_of(view)
    if view.sent.get("sure") != "yes":
        raise UsageError("nothing was done: tick the box first")
    try:
        action = Action(view.sent.get("action", ""))
    except ValueError:
        raise UsageError("choose what is to be done") from None
    if not possible(view).fits(action, matching.state):
        raise UsageError(f"{action} can't be done to {matching.state} jobs of {view.address.family}")
    look = _running(view, matching.queue)
    look.find = _doing(view, matching, action, value_of(view, action))
    to = view.link("/bulk", **{name: view.get(name) for name in ("queue", "state", *FILTERS)})
    if look.is_running or not view.shared.background.start(look):
        return view.back(to, Notice("warning", "Nothing was begun: another action on this queue is under way. Wait for its end."))
    look.wait(0.5)
    return view.back(to)


def stopped(view: View) -> Response:
    """Ends the one under way after its next step; what is done stays done."""
    check_can_act(view)
    look = _running(view, view.required("queue"))
    look.wants_end.set()
    look.wait(2.0)
    return view.back(view.link("/bulk", **{name: view.get(name) for name in ("queue", "state", *FILTERS)}))


def matching_of(view: View) -> Matching:
    """The jobs that the query names. Raises UsageError."""
    return Matching(view.required("queue"), chosen_state(view), job_filter(view))


class Stopped(UsageError):
    """Who began it has ended it."""


def _count(view: View, matching: Matching) -> Look[Bulk]:
    address = view.address

    def find(look: Look[Bulk]) -> Bulk:
        with open_steering(address) as steering:
            action = next((each for each in ACTIONS if matching.state in steering.states(each)), None)
            if action is None:
                return Bulk()
            values: dict[Action, Value] = {Action.REPRIORITISE: 0, Action.MOVE: matching.queue}
            return steering.act_on_matching(
                action,
                matching.queue,
                matching.state,
                matching.chosen,
                values.get(action),
                dry_run=True,
                progress=_progress(look),
            )

    return view.shared.background.fresh(("count", *view.keyspace, *matching.key), find, 3.0)


def _running(view: View, queue: str) -> Look[Bulk]:
    return view.shared.background.look(("bulk", *view.keyspace, queue), lambda _look: Bulk())


def _doing(view: View, matching: Matching, action: Action, value: Value) -> Callable[[Look[Bulk]], Bulk]:
    def find(look: Look[Bulk]) -> Bulk:
        with opened(view) as steering:
            tell = _progress(look)
            return steering.act_on_matching(action, matching.queue, matching.state, matching.chosen, value, progress=tell)

    return find


def _progress(look: Look[Bulk]) -> Progress:
    def tell(so_far: Bulk) -> None:
        look.progress = f"{so_far.done:,} of {so_far.looked_at:,} looked at"
        if look.wants_end.is_set():
            raise Stopped(f"it was stopped: {so_far.done:,} jobs were acted on, and stay so")

    return tell
