"""Job: the whole story of one job: where it stands, what it carries, what has happened to it, why it died. ``/job``."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import frozen
from starlette.responses import Response, StreamingResponse

from ...schema.errors import MalformedValue
from ...schema.job import Job, State
from ...schema.steering import Action
from ...schema.text import jsonable, load_json, printable_json, to_text
from . import render
from .download import pieces
from .failures import NotFound
from .lookup import find
from .render import as_text, indented, pretty
from .steer import possible
from .view import View

BINARY = "application/octet-stream"
MOST_LOGS = 200
MOST_HISTORY = 200


@frozen
class Part:
    """A piece of what a job carries, to be shown by itself."""

    title: str
    text: str
    is_cut: bool = False


@frozen
class Event:
    """Something that has happened to a job, or will."""

    at_ms: int | None
    what: str


def page(view: View) -> Response:
    """The page."""
    queue, job_id = view.required("queue"), view.required("id")
    found = find(view.address, queue, job_id)
    if found is None:
        raise NotFound(f"there is no job {job_id!r} in queue {queue!r}: it has ended, was deleted, or has moved to another queue")
    job = found.job
    return view.page(
        "job",
        job=job,
        found=found,
        events=sorted(_events(job), key=lambda event: event.at_ms or 0),
        parts=list(_parts(job)),
        raw=Part("Raw", as_text(job.payload), len(job.payload) > render.MOST_SHOWN) if job.payload is not None else None,
        editable=_editable(job),
        headers=_headers(job),
        others=_others(job),
        logs=[to_text(line) for line in job.logs[-MOST_LOGS:]],
        possible=possible(view),
        all_actions=list(Action),
        history=[_history(each) for each in job.history[-MOST_HISTORY:]],
    )


def download(view: View) -> Response:
    """The payload as it stands in Redis, as a file that no browser opens by itself; a very large one piece by piece."""
    queue, job_id = view.required("queue"), view.required("id")
    found = find(view.address, queue, job_id)
    headers = {"Content-Disposition": 'attachment; filename="payload.bin"'}
    if found is not None and found.large is not None:
        key, name, _ = found.large
        return StreamingResponse(pieces(view.address, key, name), media_type=BINARY, headers=headers)
    if found is None or found.job.payload is None:
        raise NotFound("there is no such job any more, or it has no payload")
    return Response(found.job.payload, media_type=BINARY, headers=headers)


def _events(job: Job) -> Iterator[Event]:
    """The moments that the record itself tells."""
    if job.created_at is not None:
        yield Event(job.created_at, "created")
    if job.due_at is not None:
        yield Event(job.due_at, "due")
    if job.started_at is not None:
        by = f" by {job.worker}" if job.worker else ""
        yield Event(job.started_at, f"last begun{by}" if (job.attempts or 0) > 1 else f"begun{by}")
    if job.lease_expires_at is not None:
        yield Event(job.lease_expires_at, "its consumer's lease ends")
    if job.finished_at is not None:
        word = {State.FAILED: "failed", State.CANCELLED: "cancelled"}.get(job.state, "completed")
        yield Event(job.finished_at, word)


def _parts(job: Job) -> Iterator[Part]:
    """What the payload says: of a Celery message the arguments, of any other JSON the whole."""
    if job.payload is None or len(job.payload) > render.MOST_PARSED:
        return
    try:
        value = load_json(job.payload)
    except (MalformedValue, RecursionError):
        return
    match value:
        case [list() as args, dict() as kwargs, dict() as embedded]:
            yield _part("Arguments", args)
            yield _part("Keyword arguments", kwargs)
            if any(each is not None for each in embedded.values()):
                yield _part("Callbacks, chain and chord", embedded)
        case _:
            yield Part("Payload", _bounded(pretty(job.payload) or ""), len(pretty(job.payload) or "") > render.MOST_SHOWN)
    if job.result is not None:
        yield Part("Result", _bounded(pretty(job.result) or as_text(job.result)))


def _part(title: str, value: Any) -> Part:
    text = indented(value)
    return Part(title, _bounded(text), len(text) > render.MOST_SHOWN)


def _bounded(text: str) -> str:
    return text[: render.MOST_SHOWN]


def _editable(job: Job) -> str | None:
    """The payload as text that a form gives back as it is; None for one that no form can hold."""
    if job.payload is None or len(job.payload) > render.MOST_PARSED or b"\r" in job.payload:
        return None
    try:
        text = job.payload.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if render.has_invisible(text) else text


def _headers(job: Job) -> Part | None:
    """The headers and properties of a broker's message."""
    for own in job.extra.values():
        head = own.get("head") if isinstance(own, Mapping) else None
        if isinstance(head, bytes):
            text = pretty(head) or as_text(head)
            return Part("Headers and properties", _bounded(text), len(text) > render.MOST_SHOWN)
    return None


def _others(job: Job) -> Part | None:
    """What the system keeps beside."""
    kept = {
        family: {name: value for name, value in own.items() if name != "head"} if isinstance(own, Mapping) else own
        for family, own in job.extra.items()
    }
    kept = {family: own for family, own in kept.items() if own}
    if not kept:
        return None
    text = printable_json(json.dumps(jsonable(kept), ensure_ascii=False, indent=2, default=str))
    return Part("Other fields", _bounded(text), len(text) > render.MOST_SHOWN)


def _history(entry: Mapping[str, Any]) -> str:
    return printable_json(json.dumps(jsonable(dict(entry)), ensure_ascii=False, default=str))[: render.LONGEST]
