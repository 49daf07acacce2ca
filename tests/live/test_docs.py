"""The Python examples of docs/live.md run as they stand, on a server of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from ..conftest import SERVERS
from ..support.servers import Server

PAGE = Path(__file__).parents[2] / "docs" / "live.md"
CLIENTS = [block for block in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL) if "Client(" in block]


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with SERVERS[0].start(tmp_path_factory.mktemp("docs")) as running:
        yield running


@pytest.mark.parametrize("example", CLIENTS, ids=lambda block: re.findall(r"\w+Client", block)[0])
def test_an_example_runs(one_server: Server, example: str, capsys: pytest.CaptureFixture[str]) -> None:
    client: redis.Redis = one_server.client()
    client.flushall()
    assert "localhost:6379" in example
    exec(example.replace("localhost:6379", f"{one_server.host}:{one_server.port}"), {})
    assert capsys.readouterr().out
    kue, qless = client.hgetall("q:job:1"), client.keys("ql:q:archive-work")
    assert kue.get(b"state") == b"complete" or qless or client.zcard("bee:ss:expires:resize") == 1


def test_there_is_one_for_kue_one_for_qless_and_one_that_waits() -> None:
    assert [re.findall(r"\w+Client", block)[0] for block in CLIENTS] == ["KueClient", "QlessClient", "BeeClient"]
