"""One kind of server is enough here: what the page asks of servers is tested with all of them elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ferryman.cli.ui import live

from ..conftest import SERVERS
from ..support.servers import Server
from ..support.webpage import WebPage, web_page


@pytest.fixture(scope="session")
def any_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with SERVERS[0].start(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture(scope="session")
def acting_page(any_server: Server) -> Iterator[WebPage]:
    """One page that acts, for all tests."""
    with web_page(any_server.url(), may_write=True) as page:
        yield page


@pytest.fixture(autouse=True)
def _quick_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PAUSE_S", 0.3)


@pytest.fixture
def page(request: pytest.FixtureRequest, acting_page: WebPage) -> WebPage:
    """The page of an empty database, asked by a new visitor."""
    request.getfixturevalue("server")
    acting_page.start_anew()
    return acting_page
