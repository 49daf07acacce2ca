"""Spark in a process of its own: on a machine without Java, and with a ferryman that is installed as users install it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import UsageError
from ferryman.spark.engine import SparkEngine

from ..support.captures import capture, load
from ..support.packages import install
from ..support.servers import Server

COUNT = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.read.format("ferryman").option("url", sys.argv[1]).load().count())
"""

AUDIT = """
import sys
from ferryman.schema.connection.address import Address
from ferryman.spark import java
from ferryman.spark.engine import SparkEngine
java.USUAL_PLACES = ()
print(java.java_version(java.find_java()), SparkEngine().audit(Address.parse(sys.argv[1]), 0, lambda _: None).jobs)
"""

ARCHIVED = """
import os, sys
from pathlib import Path
from pyspark import SparkContext
from ferryman.schema.connection.address import Address
from ferryman.spark.engine import SparkEngine
jobs = SparkEngine().audit(Address.parse(sys.argv[1]), 0, lambda _: None).jobs
print(jobs, os.environ["FERRYMAN_JAVA_ARCHIVE"] in Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text())
"""


def run(program: str, url: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a Python program to its end."""
    command = [sys.executable, "-c", program, url]
    return subprocess.run(command, capture_output=True, text=True, timeout=580, env={**os.environ, **environment}, check=False)


@pytest.fixture
def url(server: Server, client: redis.Redis) -> str:
    """The address of a capture of 34 jobs."""
    load(capture("kue", "crashed"), client)
    return server.url(0, family="kue")


@pytest.mark.slow
def test_where_there_is_no_java_the_bundled_one_runs_and_nothing_else_is_printed(tmp_path: Path, url: str) -> None:
    for folder in os.environ["PATH"].split(os.pathsep):
        for path in Path(folder).glob("*"):
            if path.name != "java" and not (tmp_path / path.name).exists():
                (tmp_path / path.name).symlink_to(path)
    done = run(AUDIT, url, PATH=str(tmp_path), JAVA_HOME="")
    assert (done.stdout, done.stderr, done.returncode) == ("21 34\n", "", 0)


@pytest.mark.slow
def test_an_installed_ferryman_is_found_by_spark_itself(tmp_path: Path, url: str) -> None:
    done = run(COUNT, url, PYTHONPATH=str(install(tmp_path)), PYSPARK_PYTHON=sys.executable)
    assert (done.stdout, done.returncode) == ("34\n", 0), done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_an_archive_of_classes_is_made_once_and_then_used(tmp_path: Path, url: str) -> None:
    archive = tmp_path / "spark classes.jsa"
    starts = []
    for used in (False, True):
        done = run(ARCHIVED, url, FERRYMAN_JAVA_ARCHIVE=str(archive))
        assert (done.stdout.split()[1], done.stderr, done.returncode) == (str(used), "", 0)
        starts.append((done.stdout.split()[0], archive.stat().st_mtime_ns))
    assert starts[0] == starts[1]


@pytest.mark.parametrize(("name", "reason"), [("we[i]rd", "take this name for a pattern"), ("nowhere", "no folder can be made")])
def test_a_folder_that_can_not_be_worked_in_is_named_before_spark_starts(
    server: Server, client: redis.Redis, tmp_path: Path, name: str, reason: str
) -> None:
    client.hset("q:job:1", "type", "mail")
    if name != "nowhere":
        (tmp_path / name).mkdir()
    engine = SparkEngine(work=str(tmp_path / name))
    with pytest.raises(UsageError, match=rf"{re.escape(name)}: .*{reason}"):
        engine.audit(Address.parse(server.url(family="kue")), 0, lambda _: None, pytest.fail)
