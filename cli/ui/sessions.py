"""Sessions: the signed cookies of the web page, its form tokens, and the tokens by which visitors log in.

The signing key is random and stays in this process. So a cookie shows nothing about the tokens, and a restart of the page ends
all sessions. Called by ``guard.py`` and ``login.py``.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time

from attrs import define, field, frozen

from .settings import Role, Settings

SESSION_S = 12 * 3600
"""Seconds that a session lasts."""


@frozen
class Session:
    """What a cookie says."""

    nonce: str = field(repr=False)
    role: Role | None
    """The role of the token by which the visitor logged in; None before a login."""
    expires: int
    """Unix time, seconds."""


@define(eq=False)
class Sessions:
    """Makes and checks the cookies, and remembers which sessions were ended before they expired."""

    settings: Settings
    _key: bytes = field(init=False, repr=False, factory=lambda: secrets.token_bytes(32))
    _ended: dict[str, int] = field(init=False, repr=False, factory=dict)
    """Nonce -> when its cookie would have expired. Only sessions with a role are listed, so that strangers can't fill it."""
    _lock: threading.Lock = field(init=False, repr=False, factory=threading.Lock)

    @property
    def cookie(self) -> str:
        """The cookie's name. Browsers send cookies to every port of a host, so two pages on one host need two names."""
        return f"ferryman-ui-{self.settings.port}"

    def new(self, role: Role | None) -> str:
        """Return a cookie's value, valid for SESSION_S."""
        words = f"{secrets.token_urlsafe(16)}.{role or '-'}.{int(time.time()) + SESSION_S}"
        return f"{words}.{self._signed(words)}"

    def read(self, value: str) -> Session | None:
        """Return what a cookie says, or None if it is forged or its session is over."""
        words, _, signature = value.rpartition(".")
        if not hmac.compare_digest(self._signed(words).encode(), signature.encode("utf-8", "replace")):
            return None
        nonce, role, expires = words.split(".")
        session = Session(nonce, None if role == "-" else Role(role), int(expires))
        return session if self.is_open(session) else None

    def is_open(self, session: Session) -> bool:
        """Whether a session has neither expired nor ended by a logout."""
        return session.expires >= time.time() and session.nonce not in self._ended

    def end(self, session: Session) -> None:
        """End a session: its cookie is worth nothing from now on, and neither is a copy of it."""
        if session.role is None:
            return
        now = time.time()
        with self._lock:
            self._ended = {nonce: expires for nonce, expires in self._ended.items() if expires >= now}
            self._ended[session.nonce] = session.expires

    def form_token(self, nonce: str, user: str) -> str:
        """Return what the forms of this session send."""
        return self._signed(f"form\0{nonce}\0{user}")

    def fits(self, form_token: str, expected: str) -> bool:
        """Whether a form was made for the session with this form token."""
        return hmac.compare_digest(form_token.encode("utf-8", "replace"), expected.encode())

    def role_of(self, token: str) -> Role | None:
        """Return the role that a token gives, or None for a wrong token. Takes the same time whatever is wrong."""
        found = None
        for role, secret in self.settings.tokens.items():
            if hmac.compare_digest(secret.encode(), token.encode("utf-8", "replace")):
                found = role
        return found

    def set_cookie(self, value: str, *, secure: bool, seconds: int = SESSION_S) -> str:
        """Return the header that gives a browser this cookie."""
        flags = "; Secure" if secure else ""
        return f"{self.cookie}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{flags}"

    def _signed(self, words: str) -> str:
        return hmac.new(self._key, words.encode("utf-8", "replace"), hashlib.sha256).hexdigest()
