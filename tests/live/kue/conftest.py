"""A kue keyspace for each test."""

from __future__ import annotations

import pytest
import redis

from .keyspace import World


@pytest.fixture
def world(client: redis.Redis) -> World:
    return World(client)
