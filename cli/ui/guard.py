"""Guard: stands before every route. Checks the Host header, who asks, and for a POST that the page itself has sent it; adds the
headers by which browsers let no other site near. ``app.py`` puts it there.

A visitor is known by a token (``/login``, then a signed cookie; or ``Authorization: Bearer``), by a reverse proxy's header, or,
where neither is asked for, by having reached the port. The cookie also carries what form tokens are made of. All comparisons of
secrets take the same time whatever is wrong.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from urllib.parse import quote, urlsplit

from attrs import define, field, frozen
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .settings import Role, Settings

SESSION_S = 12 * 3600
"""A login lasts so long."""
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
    """None: nobody that is known."""
    nonce: str
    form_token: str = field(repr=False)
    """What each form must send."""
    by_header: bool = False
    """By a header that no browser sends for another site: no form token is needed."""


@define
class Sessions:
    """Makes and checks the signed cookies. Who changes the tokens ends all sessions."""

    settings: Settings
    _key: bytes = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        tokens = "\0".join(f"{role}={token}" for role, token in sorted(self.settings.tokens.items()))
        self._key = hashlib.sha256(f"ferryman ui\0{tokens}".encode()).digest() if tokens else secrets.token_bytes(32)

    @property
    def cookie(self) -> str:
        """The cookie's name: cookies know no ports, so two pages on one host need two."""
        return f"ferryman-ui-{self.settings.port}"

    def new(self, role: Role | None) -> str:
        """A cookie's value, good for SESSION_S."""
        words = f"{secrets.token_urlsafe(16)}.{role or '-'}.{int(time.time()) + SESSION_S}"
        return f"{words}.{self._signed(words)}"

    def read(self, value: str) -> tuple[str, Role | None] | None:
        """The nonce and the role of a cookie; None of one that is forged or over."""
        words, _, signature = value.rpartition(".")
        if not hmac.compare_digest(self._signed(words).encode(), signature.encode("utf-8", "replace")):
            return None
        nonce, role, expires = words.split(".")
        return None if int(expires) < time.time() else (nonce, None if role == "-" else Role(role))

    def form_token(self, nonce: str, user: str) -> str:
        """What the forms of this session carry."""
        return self._signed(f"form\0{nonce}\0{user}")

    def fits(self, form_token: str, visitor: Visitor) -> bool:
        """Whether a form was made for this session."""
        return hmac.compare_digest(form_token.encode("utf-8", "replace"), visitor.form_token.encode())

    def role_of(self, token: str) -> Role | None:
        """The role that a token gives."""
        found = None
        for role, secret in self.settings.tokens.items():
            if hmac.compare_digest(secret.encode(), token.encode("utf-8", "replace")):
                found = role
        return found

    def set_cookie(self, value: str, *, secure: bool, seconds: int = SESSION_S) -> str:
        """The header that gives a browser this cookie."""
        flags = "; Secure" if secure else ""
        return f"{self.cookie}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{flags}"

    def _signed(self, words: str) -> str:
        return hmac.new(self._key, words.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


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
        secure = scope.get("scheme") == "https" or headers.get("x-forwarded-proto") == "https"
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
        visitor, fresh = self._visitor(scope, headers)
        if fresh is not None:
            cookies.append(self.sessions.set_cookie(fresh, secure=secure))
        if visitor.role is None and not scope["path"].startswith(OPEN):
            await _stranger(scope)(scope, receive, guarded)
            return
        scope["visitor"], scope["secure"] = visitor, secure
        await self.app(scope, receive, guarded)

    def _refused(self, scope: Scope, headers: Headers) -> PlainTextResponse | None:
        """The answer to a request that no browser of a visitor would have sent from our own pages."""
        names = headers.getlist("host")
        host = _host_name(names[0]) if len(names) == 1 else None
        if host is None or host not in self.settings.hosts:
            return PlainTextResponse("This host name is not served here: start ferryman ui with --public-host NAME.\n", 421)
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("Only GET and POST are known here.\n", 405, {"Allow": "GET, HEAD, POST"})
        if scope["method"] == "POST" and not _is_same_origin(headers) and "authorization" not in headers:
            return PlainTextResponse("This form was not sent from this page.\n", 403)
        return None

    def _visitor(self, scope: Scope, headers: Headers) -> tuple[Visitor, str | None]:
        """Who asks, and the cookie that the browser is to have from now on, if it has none."""
        bearer = headers.get("authorization", "")
        if bearer:
            scheme, _, token = bearer.partition(" ")
            role = self.sessions.role_of(token.strip()) if scheme.lower() == "bearer" else None
            return Visitor(str(role or ""), role, "", "", by_header=True), None
        fresh = None
        found = self.sessions.read(_cookie(headers, self.sessions.cookie) or "")
        if found is None:
            fresh = self.sessions.new(None)
            found = self.sessions.read(fresh)
        nonce, role = found or ("", None)
        user = str(role or "")
        if role is None:
            user, role = self._without_session(scope, headers)
        return Visitor(user, role, nonce, self.sessions.form_token(nonce, user)), fresh

    def _without_session(self, scope: Scope, headers: Headers) -> tuple[str, Role | None]:
        """The user's name and role of who has not logged in."""
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
    return PlainTextResponse("Log in first.\n", 401, {"WWW-Authenticate": "Bearer"})


def _host_name(value: str) -> str | None:
    try:
        return urlsplit(f"//{value}").hostname
    except ValueError:
        return None


def _is_same_origin(headers: Headers) -> bool:
    """Whether the page that sends a form is one of ours, as the browser says it."""
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
