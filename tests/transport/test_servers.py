"""The broker on a server of each generation, and the table in docs/versions.md that names those that were tried."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ..support.messages import round_trip
from ..support.servers import GENERATIONS, generation

TABLE = (Path(__file__).parents[2] / "docs" / "versions.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", GENERATIONS)
def test_the_broker_works_on_every_generation_of_servers_and_the_table_names_it(name, tmp_path):
    kind = generation(name)
    if kind is None:
        pytest.skip(f"there is no {name} here (PyPI: {GENERATIONS[name] or 'none; Debian: redis-server'})")
    with kind.start(tmp_path) as server:
        round_trip(server.url())
        with server.client() as client:
            info = client.info("server")
    brand, version = ("Valkey", info["valkey_version"]) if "valkey_version" in info else ("Redis", info["redis_version"])
    minor = ".".join(version.split(".")[:2])
    assert re.search(rf"^\| {brand} {re.escape(minor)} \|.* works", TABLE, re.MULTILINE), f"{brand} {version}"
