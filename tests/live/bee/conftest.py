"""Fixtures of bee in use."""

from __future__ import annotations

import pytest
import redis

from .served import Keyspace


@pytest.fixture
def bee(client: redis.Redis) -> Keyspace:
    """An empty keyspace."""
    return Keyspace(client)
