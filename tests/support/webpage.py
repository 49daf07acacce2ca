"""``ferryman ui`` as tests run it: the real server on a free port, in a thread of this process, asked by HTTP or by a browser."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import httpx
import uvicorn
from attrs import evolve, frozen
from ferryman.cli.ui.app import application
from ferryman.cli.ui.server import configuration
from ferryman.cli.ui.settings import Settings
from ferryman.schema.connection.address import Address

AGAIN = re.compile(r'<body[^>]* data-again="\s*\d')
"""A page that loads itself anew in a moment."""


@frozen
class WebPage:
    """A page that is served."""

    url: str
    http: httpx.Client
    """Keeps cookies, follows no redirect."""
    app: Any

    def start_anew(self) -> None:
        """Forgets the visitor, and all that was found in the background."""
        self.http.cookies.clear()
        self.app.state.shared.background.forget()

    def scanned(self, name: tuple[str, ...], seconds: float = 120.0) -> None:
        """Returns when a look in the background has finished."""
        look = self.app.state.shared.background.look(name, lambda _look: None)
        look.wait(seconds)
        assert not look.is_running
        assert not look.failure, look.failure

    def get(self, path: str, **query: str | bytes | int) -> httpx.Response:
        """A page."""
        return self.http.get(path + (f"?{urlencode(query)}" if query else ""))

    def text(self, path: str, **query: str | bytes | int) -> str:
        """The HTML of a page that is fine, as soon as nothing is under way in the background that it would look for again."""
        deadline = time.monotonic() + 120
        while True:
            response = self.get(path, **query)
            assert response.status_code == 200, response.text
            if not AGAIN.search(response.text):
                return response.text
            assert time.monotonic() < deadline, response.text
            time.sleep(0.05)

    def form_token(self) -> str:
        """What forms of this session carry."""
        self.get("/queues")
        sessions = self.app.state.shared.sessions
        session = sessions.read(self.http.cookies[sessions.cookie])
        token: str = sessions.form_token(session.nonce, str(session.role or "local"))
        return token

    def send(self, path: str, sent: dict[str, str], query: dict[str, str | bytes] | None = None) -> httpx.Response:
        """Sends a form as the page would."""
        with_token = {"form_token": self.form_token(), **sent}
        return self.http.post(
            path + (f"?{urlencode(query)}" if query else ""), data=with_token, headers={"Origin": self.url.rstrip("/")}
        )


@contextlib.contextmanager
def web_page(url: str, **settings: Any) -> Iterator[WebPage]:
    """The web page of an address. ``settings``: those of ``Settings``."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        chosen = evolve(Settings(Address.parse(url), port=port), **settings)
        app = application(chosen)
        server = uvicorn.Server(configuration(app))
        app.state.is_ending = lambda: server.should_exit
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        base = f"http://127.0.0.1:{port}"
        try:
            with httpx.Client(base_url=base, timeout=120) as http:
                yield WebPage(base + "/", http, app)
        finally:
            server.should_exit = True
            thread.join()
