"""Every rule can be broken at one job, is then all that an audit says, and goes silent again where commands mend it."""

from __future__ import annotations

import pytest
import redis
from ferryman.compat.qless import FAMILY
from ferryman.migrations.repair import Outcome
from ferryman.schema.job import Job
from ferryman.testing.faults import StoredKeyspace, changed_keys, named_words
from ferryman.testing.keyspaces import dump

from ...support.captures import Capture, capture, load
from ...support.mending import stored_in
from ...support.servers import Server

pytestmark = pytest.mark.in_turn

RULES = list(dict.fromkeys(rule.id for rule in FAMILY.rules))
NOT_INJECTABLE = {"QLESS-35", "QLESS-RECUR"}
"""Takes two running jobs that share a throttle; and what is no fault."""


def names(job: Job) -> tuple[str, ...]:
    """Of what the findings about a job may be: its tags, its failure group, its worker."""
    return (*job.tags, (job.error or "").partition(": ")[0], job.worker or "")


CRASHED = [capture("qless", name) for name in ("crashed", "crashed-reqless", "odd")]

LEFT = {
    # A finding that stays names what only people can decide: where a job went that another one waits for, which of two
    # circles to cut, whether to run again what nobody can read.
    "crashed": {"QLESS-12", "QLESS-21"},
    "crashed-reqless": {"QLESS-12", "QLESS-33", "QLESS-35"},
    "odd": {"QLESS-4", "QLESS-12", "QLESS-22"},
}


def ward_of(server: Server, client: redis.Redis, case: Capture) -> StoredKeyspace:
    client.flushdb()
    load(case, client)
    return stored_in(server, client, FAMILY, "ql", case.captured_at_ms)


@pytest.mark.parametrize("case", CRASHED, ids=str)
def test_each_repair_of_real_damage_silences_its_rule_and_changes_nothing_else(
    server: Server, client: redis.Redis, case: Capture
) -> None:
    found = {finding.rule for finding in ward_of(server, client, case).findings()} & FAMILY.repairable
    for rule in sorted(found):
        stored = ward_of(server, client, case)
        before, found = dump(client), stored.finding_keys()
        repairs = stored.repair(rule)
        assert {each.outcome for each in repairs} <= {Outcome.MENDED, Outcome.UNMENDABLE}, rule
        assert changed_keys(before, dump(client)) <= named_words(repairs), rule
        mended = {each.finding.job_id for each in repairs if each.outcome is Outcome.MENDED}
        after = stored.finding_keys()
        assert {said for said in after if said[0] == rule and said[1] in mended} == set(), rule
        # A tag that nothing has any more keeps its counter, as in qless itself.
        assert {said[0] for said in after - found} <= {"QLESS-20"}, rule


@pytest.mark.parametrize("case", CRASHED, ids=str)
def test_after_all_repairs_only_what_people_must_decide_is_left(server: Server, client: redis.Redis, case: Capture) -> None:
    stored = ward_of(server, client, case)
    stored.repair(*sorted(FAMILY.repairable))
    left = {finding.rule for finding in stored.findings()} - {"QLESS-RECUR"}
    assert left == LEFT[case.name]
