"""App: the routes of the web page, and what is around each of them: a thread, and a page for every error.

Called by ``serve.py`` and the tests.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from anyio import to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ...operations.actions import JsonLines
from ...schema.connection.connect import server_errors
from ...schema.connection.shared import sharing
from ...schema.errors import FerrymanError
from . import (
    acting,
    actionlog,
    audit,
    bulk,
    consumers,
    dead,
    enqueueing,
    job,
    jobs,
    login,
    migrations,
    overview,
    queue,
    queues,
)
from .failures import NotAllowed, failure
from .guard import Guard, Visitor
from .live import Looks, streamed
from .records import ActionLog
from .sessions import Sessions
from .settings import Settings
from .view import Shared, View

MOST_SENT = 4 << 20
"""Bytes of a form."""
STATIC = Path(__file__).parent / "static"

Page = Callable[[View], Response]
Endpoint = Callable[[Request], Awaitable[Response]]


def application(settings: Settings) -> Starlette:
    """The web page. ``app.state.shared`` is what its requests share."""
    file = None if settings.audit_log is None else JsonLines.at(settings.audit_log)
    shared = Shared(settings, Sessions(settings), actions=ActionLog(file))
    looks = Looks()
    routes = [
        Route("/", shown(overview.page)),
        Route("/queues", shown(queues.page)),
        Route("/queue", shown(queue.page)),
        Route("/jobs", shown(jobs.page)),
        Route("/job", shown(job.page)),
        Route("/job/payload", shown(job.download)),
        Route("/consumers", shown(consumers.page)),
        Route("/dead", shown(dead.page)),
        Route("/job/act", sent(acting.on_job), methods=["POST"]),
        Route("/queue/act", sent(acting.on_queue), methods=["POST"]),
        Route("/bulk", shown(bulk.page)),
        Route("/bulk", sent(bulk.confirmed), methods=["POST"]),
        Route("/bulk/stop", sent(bulk.stopped), methods=["POST"]),
        Route("/enqueue", shown(enqueueing.page)),
        Route("/enqueue", sent(enqueueing.entered), methods=["POST"]),
        Route("/log", shown(actionlog.page)),
        Route("/audit", shown(audit.page)),
        Route("/audit/start", sent(audit.started), methods=["POST"]),
        Route("/audit/stop", sent(audit.stopped), methods=["POST"]),
        Route("/migrations", shown(migrations.page)),
        Route("/queues/count", sent(queues.counted), methods=["POST"]),
        Route("/live/queues", streamed(queues.cells, looks)),
        Route("/live/queue", streamed(queue.cells, looks)),
        Route("/login", login.page),
        Route("/login", login.entered, methods=["POST"]),
        Route("/logout", sent(login.left), methods=["POST"]),
        Mount("/static", StaticFiles(directory=STATIC)),
    ]
    app = Starlette(routes=routes, middleware=[Middleware(Guard, settings=settings, sessions=shared.sessions)])
    app.state.shared = shared
    return app


def shown(page: Page) -> Endpoint:
    """A page that is asked for."""

    async def endpoint(request: Request) -> Response:
        return await to_thread.run_sync(_answer, page, request, b"")

    return endpoint


def sent(page: Page) -> Endpoint:
    """A page that a form is sent to: with the form's token, unless a program sends it with a token of the page."""

    async def endpoint(request: Request) -> Response:
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > MOST_SENT:
                return PlainTextResponse(f"More than {MOST_SENT >> 20} MB can't be sent here.\n", 413)
        return await to_thread.run_sync(_answer, _with_token(page), request, bytes(body))

    return endpoint


def _with_token(page: Page) -> Page:
    def checked(view: View) -> Response:
        visitor: Visitor = view.visitor
        if visitor.session is not None and not view.shared.sessions.fits(view.sent.get("form_token", ""), visitor.form_token):
            raise NotAllowed("this form is too old, or was not sent from this page: reload the page and try again")
        return page(view)

    return checked


def _answer(page: Page, request: Request, body: bytes) -> Response:
    try:
        view = View.of(request, body)
    except FerrymanError as error:
        found, bare = failure(error), View.bare(request)
        return bare.page("failure", status=found.status, failure=found)
    try:
        with sharing(view.shared.connections), server_errors(view.address):
            return page(view)
    except Exception as error:  # noqa: BLE001 - whatever it is, the visitor gets a page
        found = failure(error)
        return view.page("failure", status=found.status, failure=found)
