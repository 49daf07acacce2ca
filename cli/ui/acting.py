"""Acting: what the forms on the pages of a job and of a queue do. ``POST /job/act``, ``POST /queue/act``."""

from __future__ import annotations

import math

from starlette.responses import Response

from ...schema.errors import UsageError
from ...schema.steering import Action, Value
from ...schema.text import to_bytes
from .notices import Notice
from .steer import controls, not_told, notice
from .view import View


def on_job(view: View) -> Response:
    """One action on one job."""
    queue, job_id, action = view.required("queue"), view.required("id"), _action(view)
    value = value_of(view, action)
    with controls(view) as found:
        outcome = found.act(action, queue, job_id, value)
    said = notice(action, job_id, outcome, not_told(view, action))
    if outcome == "done" and action is Action.DELETE:
        return view.back(view.link("/jobs", queue=queue, state=view.sent.get("state")), said)
    if outcome == "done" and action is Action.MOVE:
        return view.back(view.link("/job", queue=value, id=job_id), said)
    return view.back(view.link("/job", queue=queue, id=job_id), said)


def on_queue(view: View) -> Response:
    """Pause, resume or drain a queue."""
    queue, action = view.required("queue"), view.sent.get("action", "")
    with controls(view) as found:
        match action:
            case "pause":
                said = Notice("fine", "Paused.") if found.pause(queue) else Notice("warning", "It was paused already.")
            case "resume":
                said = Notice("fine", "Resumed.") if found.resume(queue) else Notice("warning", "It was not paused any more.")
            case "drain":
                if view.sent.get("sure") != "yes":
                    raise UsageError("nothing was deleted: tick the box to drain the queue")
                gone = found.drain(queue)
                said = Notice("fine", f"Drained: {gone.done:,} {'job is' if gone.done == 1 else 'jobs are'} deleted.")
            case _:
                raise UsageError(f"{action!r} is nothing that can be done to a queue")
    return view.back(view.link("/queue", queue=queue), said)


def _action(view: View) -> Action:
    word = view.sent.get("action", "")
    try:
        return Action(word)
    except ValueError:
        raise UsageError(f"{word!r} is nothing that can be done to a job") from None


def value_of(view: View, action: Action) -> Value:
    """What a form says beside the action. Raises UsageError."""
    match action:
        case Action.REPRIORITISE:
            text = view.sent.get("priority", "").strip()
            try:
                priority = float(text)
            except ValueError:
                priority = math.nan
            if not math.isfinite(priority):
                raise UsageError("the priority must be a number")
            return int(priority) if priority.is_integer() else priority
        case Action.EDIT:
            # Browsers send line ends as CR LF, whatever stood in the field.
            return to_bytes(view.sent.get("payload", "").replace("\r\n", "\n"))
        case Action.MOVE:
            queue = view.sent.get("to", "").strip()
            if not queue:
                raise UsageError("name the queue to move it to")
            return queue
    return None
