"""With a work folder in an object store Spark gives on captured keyspaces what one process gives in memory."""

from __future__ import annotations

import pytest
from ferryman.spark.engine import SparkEngine

from ..migrations.test_same_results import *  # noqa: F403 - its tests, with the engine of this folder
from ..support.captures import Capture, capture, load
from ..support.servers import Server

pytestmark = pytest.mark.slow
CASES = [capture("kue", "crashed"), capture("kombu", "healthy")]


@pytest.fixture(scope="module")
def engine(engine_in_bucket: SparkEngine) -> SparkEngine:
    return engine_in_bucket


@pytest.fixture(params=CASES, ids=str)
def loaded(request: pytest.FixtureRequest, server: Server) -> Capture:
    found: Capture = request.param
    load(found, server.client())
    return found
