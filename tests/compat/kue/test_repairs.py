"""Every rule can be broken at one job, is then all that an audit says, and goes silent again where commands mend it."""

from __future__ import annotations

import pytest
import redis
from ferryman.compat.kue import FAMILY
from ferryman.migrations.repair import Outcome
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ...support.captures import Capture, capture, dump, load
from ...support.mending import Ward, assert_damaged_and_mended
from ...support.servers import Server

RULES = sorted({rule.id for rule in FAMILY.rules}, key=lambda rule: int(rule.removeprefix("KUE-")))


def test_every_rule_can_be_planted() -> None:
    assert set(RULES) == FAMILY.plantable
    assert set(RULES) >= FAMILY.repairable


@pytest.mark.parametrize("rule", RULES)
@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32), pick=st.integers(0, 24))
def test_a_planted_damage_is_all_that_is_found_and_is_mended(
    server: Server, client: redis.Redis, rule: str, seed: int, pick: int
) -> None:
    assert_damaged_and_mended(Ward(server, client, FAMILY, "q"), rule, seed, pick)
