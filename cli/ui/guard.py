"""Guard: runs before every route. It checks the Host header, identifies the visitor, and refuses a form that another site sent.
It adds the headers that tell browsers to keep other sites away. ``app.py`` installs it.

A visitor is known by a token (``/login``, then a signed cookie; or ``Authorization: Bearer``), by a reverse proxy's header, or,
where the page asks for neither, because the visitor could reach the port. Any other ``Authorization`` header is meant for the
proxy, and ignored here.
"""

from __future__ import annotations

from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote, urlsplit

import click
from anyio import sleep
from attrs import define, field, frozen
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...schema.text import show
from .sessions import Session, Sessions
from .settings import Role, Settings

PAUSE_S = 0.5
"""Seconds before a wrong token is refused."""
MOST_LOGGED = 100
"""Characters of a header in the log."""
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
"""Nothing from another host, nothing inline, in nobody's frame."""
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # "no-referrer" would take the Origin from forms, by which they are known.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=()",
}
OPEN = ("/login", "/static/")
"""What anybody may see who reaches the port."""


@frozen
class Visitor:
    """Who asks."""

    user: str
    """For the audit log: the proxy's name of the user, or the role."""
    role: Role | None
    """None: the visitor must log in first."""
    session: Session | None
    """None: a program that sends its token with each request. No browser sends that for another site: it needs no form token."""
    form_token: str = field(repr=False)
    """What each form must send."""

    @property
    def nonce(self) -> str:
        """What the notices of this visitor are kept under; empty for a program, which has no next page."""
        return self.session.nonce if self.session else ""


@define
class Guard:
    """The ASGI middleware."""

    app: ASGIApp
    settings: Settings
    sessions: Sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        # Proxies that forward to further proxies list the schemes; the first is the browser's.
        forwarded = headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
        secure = "https" in (scope.get("scheme"), forwarded)
        cookies: list[str] = []

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    found[name] = value
                if "cache-control" not in found:
                    found["Cache-Control"] = "no-store"
                for value in cookies:
                    found.append("set-cookie", value)
            await send(message)

        refused = self._refused(scope, headers)
        if refused is not None:
            await refused(scope, receive, guarded)
            return
        token = self._token(headers)
        if token is None:
            visitor, fresh = self._visitor(scope, headers)
            if fresh is not None:
                cookies.append(self.sessions.set_cookie(fresh, secure=secure))
        else:
            role = self.sessions.role_of(token)
            if role is None:
                await refuse_token(scope)
                await _not_logged_in()(scope, receive, guarded)
                return
            visitor = Visitor(str(role), role, None, "")
        if scope["method"] == "POST" and visitor.session is not None and not _is_same_origin(headers):
            await PlainTextResponse("This form was not sent from this page.\n", 403)(scope, receive, guarded)
            return
        if visitor.role is None and not scope["path"].startswith(OPEN):
            await _stranger(scope)(scope, receive, guarded)
            return
        scope["visitor"], scope["secure"] = visitor, secure
        await self.app(scope, receive, guarded)

    def _refused(self, scope: Scope, headers: Headers) -> PlainTextResponse | None:
        """Return the answer to a request for another host, or with an unsupported method."""
        names = headers.getlist("host")
        host = _host_name(names[0]) if len(names) == 1 else None
        if host is None or host not in self.settings.hosts:
            return PlainTextResponse("This host name is not served here: start ferryman ui with --public-host NAME.\n", 421)
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("Only GET and POST are supported here.\n", 405, {"Allow": "GET, HEAD, POST"})
        return None

    def _token(self, headers: Headers) -> str | None:
        """Return the token that a program sends, or None where there is none, or the page has no tokens.

        Behind a proxy with Basic authentication browsers send that header with each request, and some proxies send bearer
        tokens of their own.
        """
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return token.strip() if self.settings.tokens and scheme.lower() == "bearer" else None

    def _visitor(self, scope: Scope, headers: Headers) -> tuple[Visitor, str | None]:
        """Return the visitor, and a new cookie for a browser that has none or an expired one."""
        fresh = None
        session = self.sessions.read(_cookie(headers, self.sessions.cookie) or "")
        if session is None:
            fresh = self.sessions.new(None)
            session = self.sessions.read(fresh)
            assert session is not None
        user, role = str(session.role or ""), session.role
        if role is None:
            user, role = self._without_session(scope, headers)
        return Visitor(user, role, session, self.sessions.form_token(session.nonce, user)), fresh

    def _without_session(self, scope: Scope, headers: Headers) -> tuple[str, Role | None]:
        """Return the name and the role of a visitor who has not logged in."""
        proxy = self.settings.proxy
        if proxy is not None:
            client = scope.get("client")
            names = headers.getlist(proxy.header)
            if client and client[0] in proxy.addresses and len(names) == 1 and names[0]:
                return names[0], Role.OPERATOR if names[0] in proxy.operators else Role.READER
        if self.settings.asks_who:
            return "", None
        return "local", Role.OPERATOR


def _stranger(scope: Scope) -> PlainTextResponse | RedirectResponse:
    if scope["method"] == "GET" and not scope["path"].startswith("/live/"):
        query = scope["query_string"].decode("ascii", "replace")
        after = quote(scope["path"] + (f"?{query}" if query else ""), safe="")
        return RedirectResponse(f"/login?next={after}", 303)
    return _not_logged_in()


def _not_logged_in() -> PlainTextResponse:
    return PlainTextResponse("Log in first.\n", 401, {"WWW-Authenticate": "Bearer"})


async def refuse_token(scope: Scope) -> None:
    """Log that a visitor sent a wrong token, never the token itself, and wait PAUSE_S, so that guessing is slow."""
    client, forwarded = scope.get("client"), Headers(scope=scope).get("x-forwarded-for")
    claimed = f" (X-Forwarded-For: {show(forwarded, MOST_LOGGED)})" if forwarded else ""
    click.echo(f"ferryman: refused a wrong token from {client[0] if client else 'an unknown address'}{claimed}", err=True)
    await sleep(PAUSE_S)


def _host_name(value: str) -> str | None:
    try:
        return urlsplit(f"//{value}").hostname
    except ValueError:
        return None


def _is_same_origin(headers: Headers) -> bool:
    """Whether the page that sends a form is one of ours. The browser says so in a header."""
    origin = headers.get("origin")
    if origin is None:
        return headers.get("sec-fetch-site") == "same-origin"
    try:
        return urlsplit(origin).netloc.lower() == headers["host"].lower()
    except ValueError:
        return False


def _cookie(headers: Headers, name: str) -> str | None:
    try:
        jar = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return None
    return jar[name].value if name in jar else None
