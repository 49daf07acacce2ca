"""Stories of bee on a server of each generation: scripts run on all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...support.servers import GENERATIONS, generation
from .test_stories import STORIES, told


@pytest.mark.servers
@pytest.mark.parametrize("name", GENERATIONS)
def test_stories_end_the_same_on_every_server(name: str, tmp_path: Path) -> None:
    found = generation(name)
    if found is None:
        pytest.skip(f"there is no {name} here (PyPI: {GENERATIONS[name] or 'none; Debian: redis-server'})")
    with found.start(tmp_path) as server, server.client() as client:
        for story in STORIES:
            assert told(client, story, "ferryman", "ferryman", "bee") == told(client, story, "bee", "bee", "bee"), story.__name__
