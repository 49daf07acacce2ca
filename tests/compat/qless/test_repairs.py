"""Every rule can be broken at one job, is then all that an audit says, and goes silent again where commands mend it."""

from __future__ import annotations

import pytest
import redis
from ferryman.compat.qless import FAMILY
from ferryman.schema.job import Job
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ...support.mending import Ward, assert_damaged_and_mended
from ...support.servers import Server

RULES = list(dict.fromkeys(rule.id for rule in FAMILY.rules))
NOT_PLANTED = {"QLESS-35", "QLESS-RECUR"}
"""Takes two running jobs that share a throttle; and what is no damage."""


def test_every_rule_can_be_planted_but_those_that_one_job_cant_break() -> None:
    assert set(RULES) - FAMILY.plantable == NOT_PLANTED
    assert set(RULES) >= FAMILY.repairable


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule not in NOT_PLANTED])
@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), pick=st.integers(0, 39))
def test_a_planted_damage_is_all_that_is_found_and_is_mended(
    server: Server, client: redis.Redis, rule: str, seed: int, pick: int
) -> None:
    assert_damaged_and_mended(Ward(server, client, FAMILY, "ql"), rule, seed, pick, jobs=40, names=names)


def names(job: Job) -> tuple[str, ...]:
    """Of what the findings about a job may be: its tags, its failure group, its worker."""
    return (*job.tags, (job.error or "").partition(": ")[0], job.worker or "")
