"""The pytest plugin for tests of Celery apps: comes with the package, and needs no import.

``ferryman_broker`` is a broker of one test: see ``broker.py``. The server behind it, ``ferryman_server``, is started once for a
run and each of its processes; override that fixture to use another one. Loaded by pytest in every project where ferryman is
installed, so that it imports nothing before a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from .broker import TaskBroker


@pytest.fixture(scope="session")
def ferryman_server() -> Iterator[str]:
    """The URL of a Redis or Valkey server for tests: here the one of the ``embedded`` extra, on a free port of this machine."""
    from ..cli.embedded import embedded_server

    with embedded_server() as address:
        yield address.url()


@pytest.fixture
def ferryman_broker(ferryman_server: str) -> Iterator[TaskBroker]:
    """An empty broker for one test. Give it the app: ``ferryman_broker.use(app)``."""
    from .broker import open_broker

    with open_broker(ferryman_server, prefix=f"test-{uuid4().hex}") as broker:
        yield broker
