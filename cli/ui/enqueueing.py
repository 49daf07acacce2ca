"""Enqueueing: the form by which an operator publishes a task, or another one like a job that is there. ``/enqueue``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from ...operations import pages
from ...operations.enqueue import enqueue
from ...schema.connection.address import DEFAULT_FAMILY
from ...schema.errors import FerrymanError, MalformedValue, UsageError
from ...schema.job import Job, State
from ...schema.text import load_json, printable_json, to_bytes
from .lookup import find
from .notices import Notice
from .render import indented
from .steer import check_can_act, recorded
from .view import View

TASKS_FROM = (State.WAITING, State.FAILED)
MOST_TASKS = 30
HIGHEST_PRIORITY = 255


def page(view: View) -> Response:
    """The empty form, or one that is filled in from a job."""
    check_can_act(view)
    queue = view.required("queue")
    values = {"task": "", "args": "[]", "kwargs": "{}", "priority": "", "delay": ""}
    if view.get("id"):
        found = find(view.address, queue, view.get("id"))
        values |= _of_job(found.job) if found is not None else {}
    return _form(view, queue, values)


def entered(view: View) -> Response:
    """Publishes it; a form with a mistake comes back as it was, with a sentence about it."""
    check_can_act(view)
    queue = view.required("queue")
    # Browsers send line ends of a form as CR LF.
    values = {
        name: view.sent.get(name, "").strip().replace("\r\n", "\n") for name in ("task", "args", "kwargs", "priority", "delay")
    }
    try:
        args, kwargs = (
            _json(values["args"] or "[]", list, "arguments"),
            _json(values["kwargs"] or "{}", dict, "keyword arguments"),
        )
        priority = _whole(values["priority"], "priority", HIGHEST_PRIORITY) if values["priority"] else None
        delay_ms = round(_seconds(values["delay"]) * 1000)
        with recorded(view, "enqueue", queue) as record:
            task_id = enqueue(view.address, queue, values["task"], args, kwargs, priority=priority, delay_ms=delay_ms)
            record.done(job_id=task_id, value=values["task"])
    except UsageError as error:
        return _form(view, queue, values, str(error))
    return view.back(view.link("/queue", queue=queue), Notice("fine", f"Published {values['task']} as {task_id}."))


def _form(view: View, queue: str, values: Mapping[str, str], mistake: str = "") -> Response:
    status = 400 if mistake else 200
    values = {**values, **{name: printable_json(values[name]) for name in ("args", "kwargs")}}
    own = view.address.family == DEFAULT_FAMILY
    return view.page("enqueueing", status=status, queue=queue, values=values, mistake=mistake, tasks=_tasks(view, queue), own=own)


def _tasks(view: View, queue: str) -> list[str]:
    """Names of tasks that the queue has had lately."""
    names: dict[str, None] = {}
    for state in TASKS_FROM:
        try:
            found = pages.page(view.address, queue, state, MOST_TASKS, newest=True)
        except FerrymanError:  # the form is usable without
            return []
        names |= dict.fromkeys(job.name for job in (found.jobs if found else ()) if job.name)
    return sorted(names)[:MOST_TASKS]


def _of_job(job: Job) -> dict[str, str]:
    """What the form has to say for another job like this one."""
    values = {"task": job.name, "priority": "" if job.priority is None else f"{job.priority:g}"}
    try:
        payload = load_json(job.payload or b"null")
    except MalformedValue:
        return values
    match payload:
        case [list() as args, dict() as kwargs, dict()]:
            return values | {"args": indented(args), "kwargs": indented(kwargs)}
        case None:
            return values
    return values | {"args": indented([payload])}


def _json(text: str, kind: type, what: str) -> Any:
    shape = "a list, as in [1, 2]" if kind is list else 'an object, as in {"to": "ann"}'
    try:
        value = load_json(to_bytes(text))
    except MalformedValue as error:
        raise UsageError(f"the {what} must be JSON, {shape} ({error})") from None
    if not isinstance(value, kind):
        raise UsageError(f"the {what} must be {shape}")
    return value


def _whole(text: str, what: str, most: int) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= most):
        raise UsageError(f"the {what} must be a whole number from 0 to {most}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text or "0")
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e9:
        raise UsageError("the delay must be a number of seconds, 0 or more")
    return seconds
