"""Fixtures of the native queue's tests."""

from __future__ import annotations

import pytest
import redis
from ferryman.schema.connection.call import run

from ...support.native import Send


@pytest.fixture
def send(client: redis.Redis) -> Send:
    """Sends a call to the server of the test."""
    return lambda call: run(client, call)
