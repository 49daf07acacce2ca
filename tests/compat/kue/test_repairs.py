"""Every rule can be broken at one job, is then all that an audit says, and goes silent again where commands mend it."""

from __future__ import annotations

import pytest
import redis
from ferryman.compat.kue import FAMILY
from ferryman.migrations.repair import Outcome
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ...support.captures import capture, dump, load
from ...support.mending import Ward, assert_fault_is_found_and_mended, changed, named
from ...support.servers import Server

RULES = sorted({rule.id for rule in FAMILY.rules}, key=lambda rule: int(rule.removeprefix("KUE-")))


def test_every_rule_is_injectable() -> None:
    assert set(RULES) == FAMILY.injectable
    assert set(RULES) >= FAMILY.repairable


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), pick=st.integers(0, 24))
def test_an_injected_fault_is_all_that_is_found_and_is_mended(
    server: Server, client: redis.Redis, rule: str, seed: int, pick: int
) -> None:
    assert_fault_is_found_and_mended(Ward(server, client, FAMILY, "q"), rule, seed, pick)


@pytest.mark.parametrize("name", ["crashed", "upgraded"])
def test_the_damage_that_real_crashes_left_is_mended_rule_by_rule(server: Server, client: redis.Redis, name: str) -> None:
    case = capture("kue", name)
    ward = Ward(server, client, FAMILY, case.prefix, case.captured_at_ms)
    load(case, client)
    for rule in RULES:
        if rule not in FAMILY.repairable:
            continue
        before, keys = ward.said(), dump(client)
        repairs = ward.repair(rule)
        after = ward.said()
        mended = {each.finding.job_id or each.finding.key for each in repairs if each.outcome is Outcome.MENDED}
        assert {each.outcome for each in repairs} <= {Outcome.MENDED, Outcome.UNMENDABLE}
        left = {said[1] or said[2] for said in after if said[0] == rule}
        assert left.isdisjoint(mended)
        assert after - before == set()
        assert changed(keys, dump(client)) <= named(repairs)
    # Which jobs of workers wait again is for the user to say.
    assert {said[0] for said in ward.said()}.isdisjoint(FAMILY.repairable - FAMILY.choosable)
