"""Audits of live keyspaces with Spark: tasks look again at what they have found, and tell what is damaged and nothing else."""

from __future__ import annotations

from ferryman.schema.family import get_family
from ferryman.schema.rule import Severity
from ferryman.spark.engine import SparkEngine
from ferryman.spark.frames import read
from pyspark.sql import SparkSession

from ..support.moved import PACE, Moved
from ..support.movers import moving
from ..support.servers import Server

MOST_AUDITS = 10
"""Audits until one saw a job that was moving: mostly the first does."""


def test_an_audit_while_jobs_move_tells_the_damage_and_nothing_else(spark: SparkSession, server: Server) -> None:
    moved = Moved(server, get_family("kue"))
    engine = SparkEngine(spark, tasks=2, throttle=PACE)
    with moving(server, moved.steps):
        assert any(_seen(spark, moved) > moved.injected for _ in range(MOST_AUDITS)), "jobs did not move fast enough"
        moved.assert_only_injected(engine, MOST_AUDITS)


def _seen(spark: SparkSession, moved: Moved) -> set[tuple[str, str | None]]:
    """The errors that one reading shows, without a second look."""
    found = read(spark, moved.address.url(), moved.now_ms).findings().where(f"severity = '{Severity.ERROR}'")
    return {(row["rule"], row["job_id"]) for row in found.select("rule", "job_id").collect()}
