"""Every rule can be broken at one job, is then all that an audit says, and goes silent again where commands mend it."""

from __future__ import annotations

import pytest
import redis
from ferryman.compat.kue import FAMILY
from ferryman.migrations.repair import Outcome
from ferryman.schema.choices import NO_CHOICES, Choices
from ferryman.schema.job import Job, State
from ferryman.testing.faults import StoredKeyspace, changed_keys, named_words
from ferryman.testing.keyspaces import dump

from ...support.captures import capture, load
from ...support.mending import NOW, stored_in
from ...support.servers import Server

pytestmark = pytest.mark.in_turn

RULES = sorted({rule.id for rule in FAMILY.rules}, key=lambda rule: int(rule.removeprefix("KUE-")))


@pytest.mark.parametrize("name", ["crashed", "upgraded"])
def test_the_damage_that_real_crashes_left_is_mended_rule_by_rule(server: Server, client: redis.Redis, name: str) -> None:
    case = capture("kue", name)
    stored = stored_in(server, client, FAMILY, case.prefix, case.captured_at_ms)
    load(case, client)
    for rule in RULES:
        if rule not in FAMILY.repairable:
            continue
        before, keys = stored.finding_keys(), dump(client)
        repairs = stored.repair(rule)
        after = stored.finding_keys()
        mended = {each.finding.job_id or each.finding.key for each in repairs if each.outcome is Outcome.MENDED}
        assert {each.outcome for each in repairs} <= {Outcome.MENDED, Outcome.UNMENDABLE}
        left = {said[1] or said[2] for said in after if said[0] == rule}
        assert left.isdisjoint(mended)
        assert after - before == set()
        assert changed_keys(keys, dump(client)) <= named_words(repairs)
    # Which jobs of workers wait again is for the user to say.
    assert {said[0] for said in stored.finding_keys()}.isdisjoint(FAMILY.repairable - FAMILY.choosable)


# What users of kue report most: jobs without a state or a type, and active for ever. No repair deletes a job for that


@pytest.fixture
def stored(server: Server, client: redis.Redis) -> StoredKeyspace:
    return stored_in(server, client, FAMILY, "q")


def some(stored: StoredKeyspace, state: State = State.WAITING) -> Job:
    return next(job for job in stored.generate(40, 1) if job.state is state)


def rules(stored: StoredKeyspace, job: Job) -> set[str]:
    return {said[0] for said in stored.finding_keys() if said[1] == job.id}


def outcomes(stored: StoredKeyspace, rule: str, choices: Choices = NO_CHOICES) -> list[Outcome]:
    return [each.outcome for each in stored.repair(rule, choices=choices)]


@pytest.mark.parametrize("state", [State.WAITING, State.SCHEDULED, State.COMPLETED, State.FAILED])
def test_a_job_without_a_type_gets_the_one_that_its_index_names(
    stored: StoredKeyspace, client: redis.Redis, state: State
) -> None:
    job = some(stored, state)
    before = client.hgetall(f"q:job:{job.id}")
    client.hdel(f"q:job:{job.id}", "type")
    assert outcomes(stored, "KUE-2") == [Outcome.MENDED]
    assert client.hgetall(f"q:job:{job.id}") == before
    assert rules(stored, job) == set()


def test_a_job_without_a_type_and_a_payload_is_not_deleted(stored: StoredKeyspace, client: redis.Redis) -> None:
    job = some(stored)
    client.hdel(f"q:job:{job.id}", "type", "data")
    client.rpush(f"q:job:{job.id}:log", "a line")
    assert outcomes(stored, "KUE-24") == [Outcome.UNMENDABLE]
    assert outcomes(stored, "KUE-2") == [Outcome.MENDED]
    assert client.hget(f"q:job:{job.id}", "type") == job.queue.encode()
    assert client.lrange(f"q:job:{job.id}:log", -1, -1) == [b"a line"]


def test_where_no_index_names_the_type_people_must(stored: StoredKeyspace, client: redis.Redis) -> None:
    job = some(stored)
    client.hdel(f"q:job:{job.id}", "type")
    client.zrem(f"q:jobs:{job.queue}:inactive", f"{len(job.id):02d}|{job.id}")
    (repair,) = stored.repair("KUE-2")
    assert (repair.outcome, repair.reason) == (
        Outcome.UNMENDABLE,
        "it holds a job, and no index names its type: only people know it",
    )


@pytest.mark.parametrize("state", [State.WAITING, State.SCHEDULED, State.COMPLETED, State.FAILED])
def test_a_job_without_a_state_gets_the_one_that_its_indexes_name(
    stored: StoredKeyspace, client: redis.Redis, state: State
) -> None:
    job = some(stored, state)
    before = client.hgetall(f"q:job:{job.id}")
    client.hdel(f"q:job:{job.id}", "state")
    assert outcomes(stored, "KUE-3") == [Outcome.MENDED]
    assert client.hgetall(f"q:job:{job.id}") == before
    assert rules(stored, job) == set()


def test_a_job_whose_creation_was_cut_short_waits_if_the_user_says_so(stored: StoredKeyspace, client: redis.Redis) -> None:
    job = some(stored)
    member = f"{len(job.id):02d}|{job.id}"
    client.hdel(f"q:job:{job.id}", "state")
    client.zrem("q:jobs:inactive", member)
    client.zrem(f"q:jobs:{job.queue}:inactive", member)
    client.lpop(f"q:{job.queue}:jobs")
    (repair,) = stored.repair("KUE-3")
    assert (repair.outcome, repair.reason) == (Outcome.UNMENDABLE, "no index names its state; with --requeue it waits")
    assert outcomes(stored, "KUE-3", Choices(requeue=True)) == [Outcome.MENDED]
    assert client.hget(f"q:job:{job.id}", "state") == b"inactive"
    assert rules(stored, job) == set()
    assert not [said for said in stored.finding_keys() if said[0] in ("KUE-8", "KUE-9")]


def test_a_requeued_job_stands_as_kue_itself_would_leave_it(stored: StoredKeyspace, client: redis.Redis) -> None:
    job = next(job for job in stored.generate(120, 3) if job.state is State.ACTIVE)
    client.hdel(f"q:job:{job.id}", "ttl")
    tokens, member = client.llen(f"q:{job.queue}:jobs"), f"{len(job.id):02d}|{job.id}"
    chosen = Choices(workers=frozenset({job.worker or ""}))
    assert Outcome.MENDED in outcomes(stored, "KUE-15", chosen)
    assert client.hmget(f"q:job:{job.id}", "state", "updated_at") == [b"inactive", b"%d" % NOW]
    for state, score in (("active", None), ("inactive", float(job.priority or 0))):
        assert client.zscore(f"q:jobs:{state}", member) == score
        assert client.zscore(f"q:jobs:{job.queue}:{state}", member) == score
    assert client.llen(f"q:{job.queue}:jobs") > tokens


def test_a_job_whose_work_is_done_is_never_requeued(stored: StoredKeyspace, client: redis.Redis) -> None:
    job = next(job for job in stored.generate(120, 3) if job.state is State.ACTIVE)
    client.hdel(f"q:job:{job.id}", "ttl")
    client.hset(f"q:job:{job.id}", mapping={"progress": 100, "duration": 5})
    repairs = {each.finding.job_id: each for each in stored.repair("KUE-15", choices=Choices(older_than=0))}
    assert repairs[job.id].outcome is Outcome.UNMENDABLE
    assert "KUE-17" in (repairs[job.id].reason or "")


def test_no_due_time_is_made_up_by_a_repair(stored: StoredKeyspace, client: redis.Redis) -> None:
    job = some(stored, State.SCHEDULED)
    client.hdel(f"q:job:{job.id}", "promote_at", "delay")
    client.zrem("q:jobs:delayed", f"{len(job.id):02d}|{job.id}")
    (repair,) = stored.repair("KUE-5")
    assert (repair.outcome, repair.reason) == (Outcome.UNMENDABLE, "when it is due is lost")
