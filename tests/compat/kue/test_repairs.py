"""Every rule can be broken at one job, is then all that an audit says, and goes silent again where commands mend it."""

from __future__ import annotations

import pytest
import redis
from ferryman.compat.kue import FAMILY
from ferryman.migrations.repair import Outcome
from ferryman.testing.faults import changed_keys, named_words
from ferryman.testing.keyspaces import dump

from ...support.captures import capture, load
from ...support.mending import stored_in
from ...support.servers import Server

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
