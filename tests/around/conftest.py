"""One kind of server is enough for what stands around a broker."""

from __future__ import annotations

import pytest

from ..faults.conftest import any_server, kind
from ..support.servers import Server
from ..support.workers import Ledger

__all__ = ["any_server", "kind"]


@pytest.fixture
def ledger(server: Server) -> Ledger:
    """What tasks have said."""
    return Ledger(server)
