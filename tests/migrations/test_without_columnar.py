"""Where the extra ``columnar`` is not installed, every command works, and says what it can't do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

import pytest
import redis
from ferryman.compat.kue import FAMILY
from ferryman.compat.kue.generate import generate
from ferryman.migrations import local
from ferryman.testing.keyspaces import store

from ..support.servers import Server

NOW = 1_800_000_000_000
PROGRAM = f"""
import importlib.util, sys
others = {(*local.COLUMNAR, "pandas", "pyspark", "orjson")!r}

class Nowhere:
    @classmethod
    def find_spec(cls, name, *_):
        if name.partition(".")[0] in others:
            raise ModuleNotFoundError(name=name)

sys.meta_path.insert(0, Nowhere)
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in others else find(name, *more)

from ferryman.cli.main import main
main()
"""


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments, "--now", str(NOW)], capture_output=True, text=True, check=False
    )


@pytest.fixture
def urls(server: Server, client: redis.Redis) -> Sequence[str]:
    """A source and a target."""
    store(client, FAMILY, "q", generate(300, 1, NOW), NOW)
    return server.url(0, family="kue"), server.url(1)


def test_a_keyspace_of_any_size_is_carried_in_memory(urls: Sequence[str]) -> None:
    source, target = urls
    assert command("audit", source).returncode == 1
    assert "300 jobs read, 300 written" in command("migrate", source, target).stdout
    assert "no differences" in command("verify", source, target).stdout
    assert "email" in command("queues", target, "--scan").stdout
    assert len(command("jobs", target, "--limit", "0", "--format", "json").stdout.splitlines()) == 300


def test_what_only_processes_do_is_refused_with_the_command_to_install_them(urls: Sequence[str]) -> None:
    done = command("audit", urls[0], "--partitions", "2")
    assert done.returncode == 2
    assert "pip install 'ferryman[columnar]'" in done.stderr
