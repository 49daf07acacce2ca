"""Login: a token becomes a session. Only where the command was given tokens."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from .failures import NotAllowed, failure
from .guard import Visitor, refuse_token
from .view import Shared, View, parameters

LONGEST = 64 << 10
"""Bytes of the form."""


async def page(request: Request) -> Response:
    """Asks for a token."""
    return _page(request)


async def entered(request: Request) -> Response:
    """Takes a token."""
    shared: Shared = request.app.state.shared
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > LONGEST:
            return _page(request, "That is not a token: it is too long.", 413)
    sent = parameters(bytes(body))
    visitor: Visitor = request.scope["visitor"]
    if not shared.sessions.fits(sent.get("form_token", ""), visitor.form_token):
        return _page(request, "This form is too old: try again.", 403)
    role = shared.sessions.role_of(sent.get("token", "").strip())
    if role is None:
        await refuse_token(request.scope)
        return _page(request, "That is not a token of this page.", 403)
    if visitor.session is not None:
        shared.sessions.end(visitor.session)
    response = RedirectResponse(_local(sent.get("next", "")), 303)
    cookie = shared.sessions.set_cookie(shared.sessions.new(role), secure=request.scope["secure"])
    response.headers.append("set-cookie", cookie)
    return response


def left(view: View) -> Response:
    """End the session, on the server and in this browser."""
    if view.visitor.session is not None:
        view.shared.sessions.end(view.visitor.session)
    response = RedirectResponse("/login" if view.settings.asks_who else "/", 303)
    cookie = view.shared.sessions.set_cookie("", secure=view.secure, seconds=0)
    response.headers.append("set-cookie", cookie)
    return response


def _page(request: Request, refusal: str = "", status: int = 200) -> Response:
    view = View(
        request.app.state.shared,
        request.scope["visitor"],
        "/login",
        parameters(request.scope["query_string"]),
        address=request.app.state.shared.settings.address,
    )
    if not view.settings.tokens:
        found = failure(NotAllowed("this page has no tokens: it is entered through its reverse proxy, or without any"))
        return view.page("failure", status=found.status, failure=found)
    return view.page("login", status=status, refusal=refusal, after=_local(view.get("next")))


def _local(path: str) -> str:
    """The path itself, if it is one of this page; a browser takes ``//host`` and ``/\\host`` for other hosts."""
    is_local = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_local else "/"
