"""The examples run as they stand."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest
import redis
from pyspark.sql import SparkSession

from ..support.captures import capture, load
from ..support.servers import Server

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_the_notebook_shows_queues_findings_and_a_stream(
    server: Server, client: redis.Redis, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    load(capture("kue", "crashed"), client)
    monkeypatch.setattr(sys, "argv", ["notebook.py", server.url(family="kue")])
    made = runpy.run_path(str(EXAMPLES / "notebook.py"))
    assert isinstance(made["spark"], SparkSession)
    shown = capfd.readouterr().out
    assert "|act" in shown
    assert re.search(r"\|\s*KUE-8\s*\|\s*error\s*\|", shown)
    assert made["spark"].sql("SELECT count(DISTINCT at_ms) AS looks FROM looks").first().looks == 1
