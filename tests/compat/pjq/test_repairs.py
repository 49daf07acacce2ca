"""Every rule can be broken at one job, is then all that an audit says, and goes silent again where commands mend it."""

from __future__ import annotations

import pytest
import redis
from ferryman.compat.pjq import FAMILY
from ferryman.migrations.repair import Outcome
from ferryman.testing.faults import changed_keys
from ferryman.testing.keyspaces import dump

from ...support.captures import capture, load
from ...support.mending import stored_in
from ...support.servers import Server

pytestmark = pytest.mark.in_turn

RULES = sorted(FAMILY.injectable, key=lambda rule: int(rule.removeprefix("PJQ-")))


@pytest.mark.parametrize("name", ["crashed", "older-version-js3", "older-version-py1"])
def test_real_damage_is_mended_where_that_is_safe_and_nothing_else_changes(
    server: Server, client: redis.Redis, name: str
) -> None:
    case = capture("pjq", name)
    load(case, client)
    stored = stored_in(server, client, FAMILY, case.prefix, case.captured_at_ms)
    before, said = dump(client), stored.finding_keys()
    repairs = stored.repair(*FAMILY.repairable)
    assert {each.outcome for each in repairs} <= {Outcome.MENDED, Outcome.UNMENDABLE}
    # The worker that an unaccepted job was given to is one too many as soon as the job waits again.
    assert {rule for rule, *_ in stored.finding_keys() - said} <= {"PJQ-21"}
    mended = {(each.finding.rule, each.finding.job_id, each.finding.key) for each in repairs if each.outcome is Outcome.MENDED}
    assert mended.isdisjoint((rule, job_id, key) for rule, job_id, key, _ in stored.finding_keys())
    named = {word for each in repairs for command in each.commands for word in command[1:] if isinstance(word, bytes)}
    assert changed_keys(before, dump(client)) <= named
    if name == "crashed":
        assert {rule for rule, *_ in mended} == {f"PJQ-{number}" for number in (1, 2, 4, 6, 7, 8, 9, 10, 12, 14, 16, 20)}


def test_what_may_still_run_is_never_taken_out_of_its_list(server: Server, client: redis.Redis) -> None:
    """A job that is processing, and queued again: only when its worker is there and the payload is that of its acceptance."""
    case = capture("pjq", "crashed")
    load(case, client)
    stored = stored_in(server, client, FAMILY, case.prefix, case.captured_at_ms)
    stored.repair("PJQ-7")
    assert b"5ab6cd4d-fb17-4dd3-869d-203ec22ebdd2" in client.lrange("jobs_queued:w-late-accept", 0, -1)
    assert client.zcard("jobs_dispatched:w-early-busy") == 1


def test_jobs_that_are_dispatched_too_long_run_before_the_queued_ones(server: Server, client: redis.Redis) -> None:
    case = capture("pjq", "older-version-py1")
    load(case, client)
    stored = stored_in(server, client, FAMILY, case.prefix, case.captured_at_ms)
    waiting = client.lrange("jobs_queued:ffmpeg", 0, -1)
    dispatched = set(client.zrange("jobs_dispatched:ffmpeg", 0, -1))
    stored.repair("PJQ-10")
    now = client.lrange("jobs_queued:ffmpeg", 0, -1)
    assert (now[: len(waiting)], set(now[len(waiting) :])) == (waiting, dispatched)
