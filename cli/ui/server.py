"""Server: runs the web page on a socket that listens, until SIGINT or SIGTERM. Called by ``serve.py``; needs the extra ``ui``."""

from __future__ import annotations

import socket

import click
import uvicorn
from attrs import evolve
from starlette.applications import Starlette

from .app import application
from .settings import Settings

GRACE_S = 2
"""Seconds that open connections have at the end."""
KEEP_ALIVE_S = 75
"""Seconds that an idle connection stays open: longer than clients and reverse proxies keep theirs.

So it is they who close it, and none asks for a page in the moment in which its connection ends.
"""


def serve(settings: Settings, listener: socket.socket) -> None:
    """Returns when a signal ends it."""
    host, port = listener.getsockname()[:2]
    settings = evolve(settings, port=port)
    app = application(settings)
    server = uvicorn.Server(configuration(app))
    app.state.is_ending = lambda: server.should_exit
    role = "operators may act" if settings.may_write else "read-only"
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"ferryman: {settings.address.display()} ({role}) at http://{shown}:{port}/", err=True)
    server.run(sockets=[listener])


def configuration(app: Starlette) -> uvicorn.Config:
    """How uvicorn runs the page, here and in the tests."""
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,  # a line for each request would fill the log, and links name jobs
        proxy_headers=False,  # only the guard decides which header of which proxy is believed
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=KEEP_ALIVE_S,
        lifespan="off",
    )
