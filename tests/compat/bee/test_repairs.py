"""Every rule can be broken at one job, is then all that an audit says, and goes silent again where commands mend it."""

from __future__ import annotations

import json

import redis
from ferryman.compat.bee import FAMILY
from ferryman.migrations.repair import Outcome
from ferryman.schema.job import State
from ferryman.testing.faults import changed_keys, named_words
from ferryman.testing.keyspaces import dump

from ...support.captures import capture, load
from ...support.mending import stored_in
from ...support.servers import Server


def number(rule: str) -> int:
    return int(rule.removeprefix("BEE-"))


RULES = sorted(FAMILY.injectable, key=number)


def test_the_damage_that_real_crashes_left_is_mended_rule_by_rule(server: Server, client: redis.Redis) -> None:
    case = capture("bee", "crashed")
    stored = stored_in(server, client, FAMILY, "bee", case.captured_at_ms)
    load(case, client)
    healed = set()
    # Last what lets jobs die: some do so at once.
    for rule in sorted(FAMILY.repairable, key=lambda rule: (rule == "BEE-10", number(rule))):
        before, keys = stored.finding_keys(), dump(client)
        repairs = stored.repair(rule)
        after = stored.finding_keys()
        mended = {(each.finding.job_id, each.finding.key) for each in repairs if each.outcome is Outcome.MENDED}
        assert {each.outcome for each in repairs} <= {Outcome.MENDED, Outcome.UNMENDABLE}
        assert {said[1:3] for said in after if said[0] == rule}.isdisjoint(mended)
        assert {said[:2] for said in after} <= {said[:2] for said in before}
        assert changed_keys(keys, dump(client)) <= named_words(repairs)
        healed |= {rule} if mended else set()
    assert healed >= {"BEE-3", "BEE-8", "BEE-9", "BEE-11", "BEE-12", "BEE-13", "BEE-15", "BEE-18", "BEE-22", "BEE-23", "BEE-25"}


def test_a_job_released_from_what_has_ended_goes_on_as_bee_would_let_it(server: Server, client: redis.Redis) -> None:
    stored = stored_in(server, client, FAMILY, "bee")
    job = next(job for job in stored.generate(200, 9) if job.state is State.BLOCKED)
    [needed] = job.depends_on
    for zset in (f"bee:ss:queue:{job.queue}", f"bee:ss:delayed:{job.queue}"):
        client.zrem(zset, needed)
    client.delete(f"bee:h:jobs:{needed}")
    [repair] = [each for each in stored.repair("BEE-22") if each.finding.job_id == job.id]
    assert repair.outcome is Outcome.MENDED
    assert client.hget(f"bee:h:jobs:{job.id}", "status") == b"queued"
    assert client.zscore(f"bee:ss:queue:{job.queue}", job.id) == stored.now_ms
    assert not client.exists(f"bee:s:dependencies:{job.id}")
    assert json.loads(client.hget(f"bee:h:jobs:{job.id}", "history"))[-1]["event"] == "queued"
    assert {said for said in stored.finding_keys() if said[1] == job.id} == set()


def test_a_wrong_place_is_left_and_the_right_one_kept(server: Server, client: redis.Redis) -> None:
    stored = stored_in(server, client, FAMILY, "bee")
    job = next(job for job in stored.generate(60, 2) if job.state is State.WAITING)
    client.zadd("bee:ss:delayed:elsewhere", {job.id: stored.now_ms})
    assert {said[0] for said in stored.finding_keys() if said[1] == job.id} == {"BEE-11", "BEE-14"}
    assert [each.outcome for each in stored.repair("BEE-14")] == [Outcome.MENDED]
    assert {said[0] for said in stored.finding_keys() if said[1] == job.id} == set()
    assert client.zscore(f"bee:ss:queue:{job.queue}", job.id) is not None
