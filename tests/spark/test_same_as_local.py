"""Spark gives on captured keyspaces what one process gives in memory."""

from __future__ import annotations

import pytest
from ferryman.spark.engine import SparkEngine

from ..migrations.test_same_results import *  # noqa: F403 - its tests, with the engine of this folder
from ..support.captures import Capture, captures, load
from ..support.servers import Server

CASES = [*captures("kue"), *(each for name in ("bee", "kombu") for each in captures(name) if each.name in ("healthy", "crashed"))]


@pytest.fixture(scope="module")
def engine(spark) -> SparkEngine:
    return SparkEngine(spark, tasks=3)


@pytest.fixture(params=CASES, ids=str)
def loaded(request: pytest.FixtureRequest, server: Server) -> Capture:
    capture: Capture = request.param
    load(capture, server.client())
    return capture
