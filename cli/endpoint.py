"""Endpoint: what ``ferryman metrics --listen`` serves by HTTP: Prometheus metrics, and the backlog as JSON. Only reads.

    /backlog[?queue=NAME]   what ``ferryman backlog --format json`` prints; 503 with {"error": …} while that is not known, so that
                            who scales by it keeps what runs
    any other path          the metrics

Each request is one look, or shares the one that is under way. Needs ``prometheus_client``.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import redis
from prometheus_client import make_wsgi_app

from ..schema.errors import FerrymanError
from ..schema.text import dump_json
from .backlog import backlog
from .scrape import Scrape

BACKLOG = "/backlog"


class Server(ThreadingMixIn, WSGIServer):
    """One thread a request."""

    daemon_threads = True


class Handler(WSGIRequestHandler):
    """Logs nothing: a line a look would be all that the log had."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
        pass


def endpoint(scrape: Scrape, host: str, port: int) -> WSGIServer:
    """A server that listens. Raises OSError where it can't."""
    metrics = make_wsgi_app(scrape.registry())

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"].rstrip("/") != BACKLOG:
            pages: Iterable[bytes] = metrics(environ, start)
            return pages
        status, report = _backlog(scrape, tuple(parse_qs(environ["QUERY_STRING"]).get("queue", ())))
        body = dump_json(report).encode()
        start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]

    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    server = type("Server", (Server,), {"address_family": family})
    return make_server(host, port, answer, server_class=server, handler_class=Handler)


def _backlog(scrape: Scrape, queues: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    found = scrape.look()
    try:
        if found is not None:
            return "200 OK", backlog(found, queues)
        failure = scrape.failure
    except (FerrymanError, redis.RedisError) as error:
        failure = str(error)
    return "503 Service Unavailable", {"error": failure}
