"""View: one request for a page: who asks, of which keyspace, with which parameters; and the page that answers it.

Every page is a plain function that takes one and returns a response; it runs in a thread, because it waits for Redis. Names of
queues and ids of jobs may be any bytes, so they stand in queries, where each percent-encoded byte is what it is. Called by
``app.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from attrs import evolve, field, frozen
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from ...schema.connection.address import ANY_FAMILY, Address, Kind
from ...schema.connection.shared import SharedConnections
from ...schema.errors import UsageError
from ...schema.family import get_family
from .background import Background
from .guard import Visitor
from .notices import Notice, Notices
from .records import ActionLog
from .render import environment, link
from .sessions import Sessions
from .settings import Role, Settings

MOST_PARAMETERS = 200
LONGEST_NAME = 64 << 10
"""Characters of one parameter."""


@frozen
class Shared:
    """What all requests share."""

    settings: Settings
    sessions: Sessions
    background: Background = field(factory=Background)
    notices: Notices = field(factory=Notices)
    actions: ActionLog = field(factory=ActionLog)
    connections: SharedConnections = field(factory=SharedConnections)


@frozen
class View:
    """One request."""

    shared: Shared
    visitor: Visitor
    path: str
    query: Mapping[str, str]
    sent: Mapping[str, str] = field(factory=dict)
    """What a form has sent."""
    address: Address = field(kw_only=True)
    """The keyspace that the request is about."""
    secure: bool = field(kw_only=True, default=False)
    """Whether the browser uses HTTPS."""

    @classmethod
    def of(cls, request: Request, body: bytes = b"") -> View:
        """Raises UsageError for parameters that can't be."""
        shared: Shared = request.app.state.shared
        query, sent = parameters(request.scope["query_string"]), parameters(body)
        address = _chosen(shared.settings.address, query)
        return cls(
            shared, request.scope["visitor"], request.url.path, query, sent, address=address, secure=request.scope["secure"]
        )

    @classmethod
    def bare(cls, request: Request) -> View:
        """The request without its parameters: for who can't understand them."""
        shared: Shared = request.app.state.shared
        return cls(shared, request.scope["visitor"], request.url.path, {}, address=shared.settings.address)

    @property
    def settings(self) -> Settings:
        return self.shared.settings

    @property
    def can_act(self) -> bool:
        """Whether this visitor may change anything."""
        return self.settings.may_write and self.visitor.role is Role.OPERATOR and self.address.kind is not Kind.RDB

    @property
    def keyspace(self) -> tuple[str, str]:
        """Family and prefix."""
        return self.address.family, self.address.prefix

    def link(self, path: str, **query: Any) -> str:
        """A link to a page of the same keyspace."""
        return link(path, {**self.keyspace_query, **query})

    @property
    def keyspace_query(self) -> dict[str, str]:
        """What a link says of the keyspace: nothing of the one that the command was started for."""
        own = self.settings.address
        return {} if self.keyspace == (own.family, own.prefix) else keyspace_query(*self.keyspace)

    def again(self, **changed: Any) -> str:
        """A link to this page with some parameters changed, or left out (None)."""
        return link(self.path, {**self.query, **changed})

    def get(self, name: str) -> str:
        """A parameter; "" if it is not there."""
        return self.query.get(name, "")

    def required(self, name: str) -> str:
        """A parameter that must be there. Raises UsageError."""
        if not self.query.get(name):
            raise UsageError(f"this page needs the parameter {name}: come here by a link")
        return self.query[name]

    def number(self, name: str, default: int, most: int) -> int:
        """A whole number from 1. Raises UsageError."""
        text = self.query.get(name, "")
        if not text:
            return default
        if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= most):
            raise UsageError(f"{name} must be a number from 1 to {most}, not {text!r}")
        return int(text)

    def page(self, template: str, *, status: int = 200, **values: Any) -> Response:
        """A page from the template of this name."""
        notices = self.shared.notices.taken(self.visitor.nonce)
        text = environment().get_template(f"{template}.html").render(view=self, notices=notices, template=template, **values)
        # What a template leaves of halves of letters, if anything, must not end the request.
        return HTMLResponse(text.encode("utf-8", "backslashreplace"), status)

    def back(self, to: str, *notices: Notice) -> Response:
        """The answer to a form: the page that shows what has become, with these notices on it."""
        if self.visitor.nonce:
            self.shared.notices.leave(self.visitor.nonce, notices)
        return RedirectResponse(to, 303)


def parameters(raw: bytes) -> dict[str, str]:
    """A query or the body of a form; of a name that stands there twice the last one. Raises UsageError."""
    try:
        pairs = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="surrogateescape", max_num_fields=MOST_PARAMETERS)
    except ValueError:
        raise UsageError(f"the address of the page has more than {MOST_PARAMETERS} parameters, or is no address") from None
    return dict(pairs)


def keyspace_query(family: str, prefix: str) -> dict[str, str]:
    """The parameters that choose a keyspace, by the words of ferryman's URLs."""
    return {"family": family, "prefix": prefix}


def _chosen(address: Address, query: Mapping[str, str]) -> Address:
    """The keyspace that a request names; else the command's own."""
    family = query.get("family")
    if not family:
        return address
    if family == ANY_FAMILY:
        raise UsageError("choose a keyspace from the overview")
    prefix = query.get("prefix", get_family(family).default_prefix)
    if len(prefix) > LONGEST_NAME:
        raise UsageError("the prefix is too long")
    settings = address.settings if family == address.family else ()
    return evolve(address, family=family, prefix=prefix, settings=settings).of_keyspace()
