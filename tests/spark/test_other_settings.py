"""kombu keyspaces of other settings, with messages in two places and keys of others: both engines see and do the same."""

from __future__ import annotations

import pytest
from attrs import evolve
from ferryman.migrations.engine import Difference, Engine, Verification
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address
from ferryman.schema.job import Job
from ferryman.schema.rule import Finding
from ferryman.schema.text import dump_json
from ferryman.spark.engine import SparkEngine
from ferryman.testing.keyspaces import dump

from ..support.servers import Server

LOCAL = LocalEngine()
NOW = 1_800_000_000_000
SEP = ":"


def message(tag: str, priority: int, exchange: str = "", key: str = "celery") -> str:
    info = {"exchange": exchange, "routing_key": key}
    properties = {"delivery_tag": tag, "delivery_info": info, "priority": priority, "body_encoding": "base64"}
    return dump_json({"body": "W10=", "headers": {"task": "t", "id": tag}, "properties": properties})


@pytest.fixture
def url(server: Server) -> str:
    """A keyspace with another separator, every step, renamed unacked keys, and results of tasks beside it."""
    client = server.client()
    client.sadd("_kombu.binding.celery", SEP.join(("celery", "", "celery")))
    client.sadd("_kombu.binding.news", SEP.join(("x", "", "news")))
    for priority in range(1, 10):
        client.lpush(f"celery{SEP}{priority}", message(f"c-{priority}", priority))
        client.lpush(f"news{SEP}{priority}", message(f"n-{priority}", priority, "news", "x"))
    client.lpush("celery", message("c-0", 0), message("twice", 0))
    client.hset("my_unacked", "twice", f'[{message("twice", 0)},"","celery"]')
    client.zadd("my_unacked_index", {"twice": NOW / 1000})
    for number in range(30):
        client.set(f"celery-task-meta-{number:032x}", "{}")
    return server.url(0, family="kombu")


def seen(engine: Engine, source: Address) -> tuple[list[Job], list[Finding]]:
    findings: list[Finding] = []
    engine.audit(source, NOW, findings.append)
    return list(engine.jobs(source, NOW)), sorted(findings, key=repr)


@pytest.mark.parametrize(
    "options", ["", "&sep=:&priority_steps=0,1,2,3,4,5,6,7,8,9&unacked_key=my_unacked&unacked_index_key=my_unacked_index"]
)
def test_both_engines_find_the_settings(engine: SparkEngine, url: str, options: str) -> None:
    source = Address.parse(url + options)
    jobs, findings = seen(LOCAL, source)
    assert {job.queue for job in jobs} == {"celery", "news"}
    assert len(jobs) == 21
    assert {finding.rule for finding in findings} == {"KOMBU-3"}
    assert seen(engine, source) == (jobs, findings)


def test_both_engines_carry_and_compare_the_same(server: Server, engine: SparkEngine, url: str) -> None:
    source = Address.parse(url)
    outcomes, keys = [], []
    for db, each in ((1, LOCAL), (2, engine)):
        target = Address.parse(server.url(db))
        plan, differences = Plan.between(source, target, NOW), list[Difference]()
        summary = each.migrate(source, target, plan, lambda _finding: None)
        outcome: Verification = each.verify(source, target, plan, differences.append)
        assert differences == []
        assert (outcome.source_jobs, outcome.target_jobs, outcome.matched, outcome.refused) == (21, 20, 20, 1)
        assert summary.left_behind == {"celery-task-meta-*": 30}
        outcomes.append((evolve(summary, seconds=0), evolve(outcome, seconds=0)))
        keys.append({key: entry for key, entry in dump(server.client(db)).items() if not key.startswith(b"ferryman-migration:")})
    assert outcomes[0] == outcomes[1]
    assert keys[0].keys() == keys[1].keys()
