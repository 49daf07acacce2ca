"""Every rule can be broken at one job, is then all that an audit says, and goes silent again where commands mend it."""

from __future__ import annotations

import pytest
import redis
from ferryman.compat.pjq import FAMILY
from ferryman.migrations.repair import Outcome
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ...support.captures import capture, dump, load
from ...support.mending import Ward, assert_fault_is_found_and_mended, changed
from ...support.servers import Server

RULES = sorted(FAMILY.injectable, key=lambda rule: int(rule.removeprefix("PJQ-")))


def test_every_rule_of_the_current_program_is_injectable() -> None:
    assert {rule.id for rule in FAMILY.rules} - FAMILY.injectable == {"PJQ-26"}
    assert {rule.id for rule in FAMILY.rules} >= FAMILY.repairable


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), pick=st.integers(0, 59))
def test_an_injected_fault_is_all_that_is_found_and_is_mended(
    server: Server, client: redis.Redis, rule: str, seed: int, pick: int
) -> None:
    # A worker from which a job is taken stays among the busy ones for a while, which an audit tells.
    is_mended = rule not in FAMILY.choosable
    assert_fault_is_found_and_mended(Ward(server, client, FAMILY, ""), rule, seed, pick, jobs=60, is_mended=is_mended)


@pytest.mark.parametrize("name", ["crashed", "older-version-js3", "older-version-py1"])
def test_real_damage_is_mended_where_that_is_safe_and_nothing_else_changes(
    server: Server, client: redis.Redis, name: str
) -> None:
    case = capture("pjq", name)
    load(case, client)
    ward = Ward(server, client, FAMILY, case.prefix, case.captured_at_ms)
    before, said = dump(client), ward.said()
    repairs = ward.repair(*FAMILY.repairable)
    assert {each.outcome for each in repairs} <= {Outcome.MENDED, Outcome.UNMENDABLE}
    # The worker that an unaccepted job was given to is one too many as soon as the job waits again.
    assert {rule for rule, *_ in ward.said() - said} <= {"PJQ-21"}
    mended = {(each.finding.rule, each.finding.job_id, each.finding.key) for each in repairs if each.outcome is Outcome.MENDED}
    assert mended.isdisjoint((rule, job_id, key) for rule, job_id, key, _ in ward.said())
    named = {word for each in repairs for command in each.commands for word in command[1:] if isinstance(word, bytes)}
    assert changed(before, dump(client)) <= named
    if name == "crashed":
        assert {rule for rule, *_ in mended} == {f"PJQ-{number}" for number in (1, 2, 4, 6, 7, 8, 9, 10, 12, 14, 16, 20)}


def test_what_may_still_run_is_never_taken_out_of_its_list(server: Server, client: redis.Redis) -> None:
    """A job that is processing, and queued again: only when its worker is there and the payload is that of its acceptance."""
    case = capture("pjq", "crashed")
    load(case, client)
    ward = Ward(server, client, FAMILY, case.prefix, case.captured_at_ms)
    ward.repair("PJQ-7")
    assert b"5ab6cd4d-fb17-4dd3-869d-203ec22ebdd2" in client.lrange("jobs_queued:w-late-accept", 0, -1)
    assert client.zcard("jobs_dispatched:w-early-busy") == 1


def test_jobs_that_are_dispatched_too_long_run_before_the_queued_ones(server: Server, client: redis.Redis) -> None:
    case = capture("pjq", "older-version-py1")
    load(case, client)
    ward = Ward(server, client, FAMILY, case.prefix, case.captured_at_ms)
    waiting = client.lrange("jobs_queued:ffmpeg", 0, -1)
    dispatched = set(client.zrange("jobs_dispatched:ffmpeg", 0, -1))
    ward.repair("PJQ-10")
    now = client.lrange("jobs_queued:ffmpeg", 0, -1)
    assert (now[: len(waiting)], set(now[len(waiting) :])) == (waiting, dispatched)
