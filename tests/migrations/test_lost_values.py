"""A job that has lost a value stays at the source, is named there, and goes over with ``--accept`` and the value that is told."""

from __future__ import annotations

import pytest
import redis
from ferryman.compat.kue import FAMILY as KUE
from ferryman.compat.qless import FAMILY as QLESS
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import UsageError
from ferryman.schema.family import KeyFamily
from ferryman.schema.job import State
from ferryman.testing.keyspaces import store

from ..support.command import ferryman
from ..support.mending import NOW
from ..support.servers import Server

pytestmark = pytest.mark.in_turn


def scheduled(client: redis.Redis, family: KeyFamily) -> str:
    """The id of a scheduled job that has lost the time when it is due."""
    made = list(family.generate(40, 1, NOW))
    store(client, family, family.default_prefix, made, NOW)
    job = next(job for job in made if job.state is State.SCHEDULED)
    if family is QLESS:
        client.zrem(f"ql:q:{job.queue}-scheduled", job.id)
    else:
        client.hdel(f"q:job:{job.id}", "promote_at", "delay")
        client.zadd("q:jobs:delayed", {f"{len(job.id):02d}|{job.id}": 0})
    return job.id


@pytest.mark.parametrize(("family", "rule"), [(QLESS, "QLESS-4"), (KUE, "KUE-32")], ids=["qless", "kue"])
@pytest.mark.parametrize("engine", ["local", "spark"])
def test_a_lost_due_time_is_named_and_never_made_up(
    server: Server, client: redis.Redis, family: KeyFamily, rule: str, engine: str
) -> None:
    job_id = scheduled(client, family)
    source, target = server.url(family=family.name), server.url(1)
    (audited,) = (line for line in _lines("audit", source) if line["job_id"] == job_id and line["rule"] == rule)
    assert f"migrate --accept {rule} carries it due at once" in audited["detail"]
    *said, summary = _lines("migrate", source, target, "--engine", engine, "--lossy")
    assert [line["rule"] for line in said if line["job_id"] == job_id] == [rule]
    assert summary["refused"][rule] == [job_id]
    # The generated jobs of qless that wait for a throttle are refused for what they wait for.
    assert all("throttle of reqless" in line["detail"] for line in said if line["rule"] == "NATIVE-W5")
    assert job_id not in {line["id"] for line in _lines("jobs", target)}
    server.client(1).flushdb()

    *said, summary = _lines("migrate", source, target, "--engine", engine, "--lossy", "--accept", rule)
    assert [line["rule"] for line in said if line["job_id"] == job_id] == [rule]
    assert rule not in summary["refused"]
    assert all("(carried due at once" in str(line["detail"]) for line in said if line["rule"] == rule)
    there = {line["id"]: line for line in _lines("jobs", target)}
    assert (there[job_id]["state"], there[job_id]["due_at"]) == ("scheduled", None)
    # It goes by the choices of the migration.
    assert ferryman("verify", source, target).status == 0


def _lines(command: str, *arguments: str) -> list[dict[str, object]]:
    now = ("--now", str(NOW)) if command in ("audit", "migrate") else ()
    return ferryman(command, *arguments, *now, "--format", "json").lines()


def test_a_rule_that_assumes_nothing_can_not_be_accepted() -> None:
    source, target = (Address.parse(f"ferryman://h/{db}{family}") for db, family in ((0, "?family=kue"), (1, "")))
    assert Plan.between(source, target, NOW, accepted=["KUE-32", "KUE-11", "KUE-11"]).accepted == ("KUE-11", "KUE-32")
    for rule in ("KUE-2", "KUE-99", "QLESS-4"):
        with pytest.raises(UsageError, match=f"kue has no rule '{rule}' to accept; rules that tell what to assume: KUE-11, "):
            Plan.between(source, target, NOW, accepted=[rule])


def test_what_was_accepted_is_remembered_and_older_journals_have_accepted_nothing() -> None:
    source, target = (Address.parse(f"ferryman://h/{db}{family}") for db, family in ((0, "?family=kue"), (1, "")))
    plan = Plan.between(source, target, NOW, accepted=["KUE-32"])
    bare = Plan.between(source, target, NOW)
    assert bare.with_choices(plan.choices()) == plan
    assert plan.with_choices({"now_ms": NOW, "active": "requeue", "lossy": False}) == bare
