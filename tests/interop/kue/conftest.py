"""kue itself needs no more than one kind of server: what differs between them shows in tests/live."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ...conftest import SERVERS
from ...support.servers import Server


@pytest.fixture(scope="session")
def any_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Redis where there is one."""
    with SERVERS[-1].start(tmp_path_factory.mktemp("server")) as server:
        yield server
