"""Live: server-sent events with the numbers of a page that have changed, for as long as it is open. ``/live/…``

Each event is the texts of cells by their names (``render.cell``); the script of the page puts them in. Many who look at the
same page share one look each PAUSE_S. A server that is away is an event, too: the stream goes on, and the numbers come back
with it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from anyio import to_thread
from attrs import define, field
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from ...schema.connection.connect import server_errors
from ...schema.connection.shared import sharing
from ...schema.errors import FerrymanError
from .view import View

PAUSE_S = 2.0
MOST_STREAMS = 200
MOST_KEPT = 100

Cells = Callable[[View], Mapping[str, str]]


@define(eq=False)
class Looks:
    """What was seen last of each page, and when."""

    _seen: OrderedDict[tuple[str, ...], tuple[float, Mapping[str, str] | None]] = field(factory=OrderedDict)
    _locks: dict[tuple[str, ...], asyncio.Lock] = field(factory=dict)
    streams: int = 0

    async def cells(self, cells: Cells, view: View) -> Mapping[str, str] | None:
        """The cells of a page, at most PAUSE_S old; None while they can't be had."""
        key = (view.path, *(word for pair in sorted(view.query.items()) for word in pair))
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            at, seen = self._seen.get(key, (0.0, None))
            if time.monotonic() - at >= PAUSE_S * 0.9:
                seen = await to_thread.run_sync(_cells, cells, view)
                self._seen[key] = time.monotonic(), seen
                self._seen.move_to_end(key)
                while len(self._seen) > MOST_KEPT:
                    old, _ = self._seen.popitem(last=False)
                    self._locks.pop(old, None)
        return seen


def streamed(cells: Cells, looks: Looks) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint that streams a page's cells."""

    async def endpoint(request: Request) -> Response:
        if looks.streams >= MOST_STREAMS:
            return PlainTextResponse("Too many pages are open: reload for numbers.\n", 503)
        try:
            view = View.of(request)
        except FerrymanError:
            return PlainTextResponse("These parameters can't be.\n", 400)
        server_is_ending = getattr(request.app.state, "is_ending", lambda: False)
        session, sessions = view.visitor.session, view.shared.sessions

        def is_ending() -> bool:
            return server_is_ending() or (session is not None and not sessions.is_open(session))

        return StreamingResponse(_events(cells, looks, view, is_ending), media_type="text/event-stream")

    return endpoint


async def _events(cells: Cells, looks: Looks, view: View, is_ending: Callable[[], bool]) -> AsyncIterator[bytes]:
    looks.streams += 1
    sent: dict[str, str] = {}
    try:
        yield b"retry: 3000\n\n"
        while not is_ending():
            found = await looks.cells(cells, view)
            if found is None:
                sent = {}
                yield b"event: failure\ndata: {}\n\n"
            else:
                changed = {name: text for name, text in found.items() if sent.get(name) != text}
                sent = dict(found)
                yield b"event: numbers\ndata: " + json.dumps(changed).encode() + b"\n\n"
            until = time.monotonic() + PAUSE_S
            while time.monotonic() < until and not is_ending():
                await asyncio.sleep(0.2)
    finally:
        looks.streams -= 1


def _cells(cells: Cells, view: View) -> Mapping[str, str] | None:
    try:
        with sharing(view.shared.connections), server_errors(view.address):
            return cells(view)
    except (FerrymanError, OSError):
        return None
