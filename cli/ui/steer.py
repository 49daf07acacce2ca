"""Steer: the actions of one visitor, each of them recorded. Called by the pages that act."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import define, evolve, frozen

from ...operations.actions import ActionRecord
from ...operations.steering import Controls, open_steering
from ...schema.connection.address import Kind
from ...schema.job import State
from ...schema.steering import Action, Outcome, Steering
from ..steering import telling_app, untold
from .failures import NotAllowed
from .notices import Notice
from .settings import Role
from .view import View

DONE: Mapping[Action, str] = {
    Action.PROMOTE: "waits from now on",
    Action.REPRIORITISE: "has its new priority",
    Action.EDIT: "has its new payload",
    Action.MOVE: "was moved",
    Action.REQUEUE: "waits again",
    Action.CANCEL: "is cancelled",
    Action.DELETE: "is deleted",
}
"""What is to be said of a job when an action is done."""


@define
class Recording:
    """What a block that acts says of it."""

    record: ActionRecord

    def done(self, outcome: str = "done", *, job_id: str | None = None, value: str | None = None) -> None:
        """How it went."""
        self.record = evolve(self.record, outcome=outcome, job_id=job_id, value=value)


@contextlib.contextmanager
def recorded(view: View, action: str, queue: str) -> Iterator[Recording]:
    """Notes what happens in the block, an error too."""
    record = ActionRecord(time.time_ns() // 1_000_000, view.visitor.user, view.address.display(), action, queue)
    recording = Recording(record)
    try:
        yield recording
    except BaseException as error:
        recording.done(f"{type(error).__name__}: {error}")
        raise
    finally:
        for sink in view.shared.actions.sinks:
            sink(recording.record)


@contextlib.contextmanager
def controls(view: View) -> Iterator[Controls]:
    """The actions, for the length of the block. Raises NotAllowed for who may only look, and as ``open_steering`` does."""
    check_can_act(view)
    with opened(view) as found:
        yield found


@contextlib.contextmanager
def opened(view: View) -> Iterator[Controls]:
    """The actions of a visitor who may act, also for a thread that outlives the request. Raises as ``open_steering`` does."""
    by, sinks = view.visitor.user, view.shared.actions.sinks
    with telling_app(_app(view)) as tell, open_steering(view.address, by=by, sinks=sinks, tell_cancelled=tell) as found:
        yield found


def _app(view: View) -> Any:
    """The app that the page runs for, if this is its keyspace; others in the database are others'."""
    own = view.settings.address
    return view.settings.app if view.keyspace == (own.family, own.prefix) else None


def not_told(view: View, action: Action) -> str:
    """That no result backend is told of an action, as a sentence; "" if one is, or need not be."""
    said = untold(view.address, _app(view), "ui") if action is Action.CANCEL else ""
    return f" {said[0].upper()}{said[1:]}." if said else ""


def check_can_act(view: View) -> None:
    """Raises NotAllowed, with what would allow it."""
    if view.can_act:
        return
    if not view.settings.may_write:
        raise NotAllowed("this page is read-only: start ferryman ui with --write")
    if view.visitor.role is not Role.OPERATOR:
        raise NotAllowed("readers may look at everything and change nothing: log in as an operator")
    raise NotAllowed("a snapshot file can't be changed")


@frozen
class Possible:
    """What can be done to the jobs of a keyspace; what the family can't do is said, not hidden."""

    actions: Mapping[Action, frozenset[State]]
    can_pause: bool
    family: str

    def fits(self, action: Action, state: State) -> bool:
        """Whether jobs of this state can be acted on so."""
        return state in self.actions.get(action, frozenset())

    def why_not(self, action: Action, state: State) -> str:
        """For people; "" if it can be done."""
        if self.fits(action, state):
            return ""
        if action not in self.actions:
            return f"{self.family} can't {action} jobs"
        return f"not for {state} jobs"


def possible(view: View) -> Possible:
    """What the family can do, asked of no server."""
    steering: Steering | None = None
    if view.address.kind is not Kind.RDB:
        steering = view.address.key_family.steering(view.address.prefix)
    if steering is None:
        return Possible({}, False, view.address.family)
    return Possible(steering.actions, steering.can_pause, view.address.family)


def notice(action: Action, job_id: str, outcome: Outcome, note: str = "") -> Notice:
    """What became of an action on one job: also that somebody else was quicker. ``note``: what is to be added if it was done."""
    match outcome:
        case "done":
            return Notice("fine", f"Job {job_id} {DONE[action]}.{note}")
        case "missing":
            return Notice("warning", f"Nothing was done: job {job_id} is not there any more. It ended, or somebody acted first.")
        case "held":
            return Notice("warning", f"Nothing was done: a consumer has job {job_id} now.")
    return Notice(
        "warning",
        f"Nothing was done: the state of job {job_id} does not allow to {action} it any more. Somebody else acted first?",
    )
