"""Stories of kombu on a server of each generation: scripts run on all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...support.servers import GENERATIONS, generation
from .tellers import Original, Ours, keyspace
from .test_stories import STORIES


@pytest.mark.servers
@pytest.mark.parametrize("name", GENERATIONS)
def test_stories_leave_the_same_keyspace_on_every_server(name: str, tmp_path: Path) -> None:
    found = generation(name)
    if found is None:
        pytest.skip(f"there is no {name} here (PyPI: {GENERATIONS[name] or 'none; Debian: redis-server'})")
    with found.start(tmp_path) as server, server.client() as client:
        for story in STORIES:
            told = []
            for teller in (Original(server), Ours(server)):
                client.flushdb()
                told.append([(said, keyspace(client)) for said in story(teller)])
            assert told[0] == told[1], story.__name__
