"""Pipelines: a lost connection is told with the server at its other end, of which a cluster has several."""

from __future__ import annotations

import pytest
import redis
from ferryman.schema.connection.pipeline import open_pipeline

from ..support.servers import Server


def test_a_connection_that_the_server_closes_is_told_with_its_server(server: Server, client: redis.Redis) -> None:
    with server.client() as other, open_pipeline(other) as pipe:
        client.client_kill_filter(_id=pipe.ask("CLIENT", "ID"))
        with pytest.raises(redis.exceptions.ConnectionError, match=f"127.0.0.1:{server.port}"):
            pipe.replies(1)


def test_a_server_that_says_nothing_is_told_too(server: Server) -> None:
    names_the_server = pytest.raises(redis.exceptions.TimeoutError, match=f"127.0.0.1:{server.port}")
    with redis.Redis(server.host, server.port, socket_timeout=1) as other, open_pipeline(other) as pipe, names_the_server:
        pipe.ask("BLPOP", "nothing", 0)
