"""Audits a keyspace, carries its jobs to another one and verifies them, as one Spark application.

    spark-submit --master spark://head:7077 --archives packages.tar.gz#packages --conf spark.executorEnv.PYTHONPATH=packages \
        carry.py SOURCE TARGET WORK

SOURCE and TARGET: ferryman:// URLs. Spark's event log shows them, so they name their passwords (password_env=, password_file=).
WORK: a folder that the driver and all executors share.
Prints one JSON object, or one line that says what failed. Exit status: 0 all is equal, 1 there are differences, 3 it failed.
docs/spark.md says how to make packages.tar.gz.
"""

from __future__ import annotations

import json
import sys
from collections import Counter

from ferryman.migrations.plan import Plan
from ferryman.migrations.source import open_source
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import FerrymanError
from ferryman.spark.engine import SparkEngine


def carry(source: Address, target: Address, work: str) -> int:
    """Returns the number of differences between what was to be carried and what stands at the target."""
    engine = SparkEngine(work=work)
    with open_source(source) as opened:
        now_ms = opened.clock_ms()
    plan = Plan.between(source, target, now_ms)
    findings: Counter[str] = Counter()
    census = engine.audit(source, now_ms, lambda finding: findings.update([finding.rule]))
    summary = engine.migrate(source, target, plan, lambda _: None)
    outcome = engine.verify(source, target, plan, lambda _: None)
    result = {"now_ms": now_ms, "jobs": census.jobs, "findings": findings, "written": summary.written, "refused": summary.refused}
    print(json.dumps({**result, "matched": outcome.matched, "differences": outcome.by_field}))
    return outcome.differences


if __name__ == "__main__":
    try:
        sys.exit(1 if carry(Address.parse(sys.argv[1]), Address.parse(sys.argv[2]), sys.argv[3]) else 0)
    except FerrymanError as error:
        print(f"carry: {error}")
        sys.exit(3)
