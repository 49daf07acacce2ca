"""Progress as somebody sees it who watches a terminal: how much of how much, how fast, how long it will still take."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from ferryman.migrations.source import open_source
from ferryman.schema.connection.address import Address
from ferryman.schema.family import get_family
from ferryman.testing.keyspaces import store

from ..conftest import SERVERS
from ..support.captures import capture
from ..support.command import PROGRAM
from ..support.servers import Server

NOW = 1_795_262_676_000
JOBS = 1500
"""Few enough to be carried in one process, which tells of each batch of keys; others tell of parts."""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def any_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One kind: what is shown does not depend on it."""
    with SERVERS[0].start(tmp_path_factory.mktemp("server")) as server:
        yield server


def watched(path: Path, *arguments: str) -> tuple[int, str]:
    """Runs the command with stderr on a terminal and stdout in the file ``path``: its status, and what the terminal got."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with path.open("wb") as stdout:
        process = subprocess.Popen([*PROGRAM, *arguments], stdout=stdout, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:  # how Linux says that the other end is closed
        pass
    finally:
        os.close(ours)
    return process.wait(120), ESCAPES.sub("", shown.decode())


def test_a_terminal_shows_rate_and_time_left_of_each_phase_and_stdout_stays_clean(
    server: Server, client: redis.Redis, tmp_path: Path
) -> None:
    family = get_family("kue")
    store(client, family, "q", family.generate(JOBS, 3, NOW), NOW)
    keys = client.dbsize()
    # The keys of others are no part of the work.
    client.mset({f"session:{number}": "x" for number in range(keys)})
    url, out = server.url(family="kue"), tmp_path / "out"
    options = ("--format", "json", "--now", str(NOW), "--throttle", str(keys))
    status, shown = watched(out, "migrate", url, server.url(1), *options)
    assert status == 0
    *_, summary = map(json.loads, out.read_text("utf-8").split("\n")[:-1])
    assert summary["written"] == JOBS
    reading = re.findall(r"reading kue keys\s.*?(\d+)/(\d+) [\d,]+/s, \d:\d\d:\d\d left", shown)
    assert len(reading) > 2
    done, total = map(int, reading[-1])
    assert done <= total
    assert abs(total - keys) < keys / 5
    assert re.search(rf"writing jobs\s.*?{JOBS}/{JOBS} in \d:\d\d:\d\d", shown)


def test_a_snapshot_and_a_server_say_how_much_of_them_is_read(server: Server, client: redis.Redis) -> None:
    family = get_family("kue")
    store(client, family, "q", family.generate(3000, 3, NOW), NOW)
    with open_source(Address.parse(server.url(family="kue"))) as source:
        assert source.share() is None
        shares = [source.share() or 0.0 for _ in source.entries(NOW)]
        assert shares == sorted(shares)
        assert 0.3 < shares[len(shares) // 2] < 0.7
        assert source.share() == 1
    with open_source(Address.parse(f"ferryman+rdb://{capture('kue', 'healthy').rdb}?family=kue")) as source:
        assert source.share() == 0
        assert list(source.entries(NOW))
        assert source.share() == pytest.approx(1, abs=0.01)
