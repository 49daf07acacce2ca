"""Plans and ``decide``: who goes over, in which form, and who stays. Pure; the family here is as small as one can be."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import evolve
from ferryman.migrations.engine import REFUSED_SAMPLES, Census, Summary
from ferryman.migrations.plan import RULE_ACTIVE, Active, Decision, Plan, decide
from ferryman.schema.connection.address import Address, Kind
from ferryman.schema.errors import UsageError
from ferryman.schema.fact import Fact, FactKind, Subject, join
from ferryman.schema.family import Keyspace
from ferryman.schema.job import Job, State
from ferryman.schema.rule import Finding, Severity

from ..support.toy import TOY, install

PLAN = Plan("epoch", "toy", "toy", "toy", "other", 1000)
KEYSPACE = Keyspace(TOY, "toy", 1000)


@pytest.fixture(autouse=True)
def toy_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, monkeypatch)


def subject(**fields: str) -> Subject:
    values = tuple(word.encode() for pair in fields.items() for word in pair)
    return join([Fact(FactKind.RECORD, "record", b"toy:1", "hash", "1", values=values)])


def test_a_sound_job_goes_over_as_it_is() -> None:
    decision = decide(subject(state="waiting", payload="x"), KEYSPACE, PLAN)
    assert decision.job == decision.original
    assert decision.findings == ()
    assert not decision.refused


def test_a_job_that_breaks_a_refusing_rule_stays_and_the_rule_is_named() -> None:
    decision = decide(subject(state="waiting"), KEYSPACE, PLAN)
    assert decision.refused
    assert [finding.rule for finding in decision.findings] == ["TOY-1"]


def test_an_index_entry_without_a_job_is_reported_and_not_counted_as_a_job() -> None:
    ghost = join([Fact(FactKind.PLACE, "index", b"toy:index", "zset", "1")])
    decision = decide(ghost, KEYSPACE, PLAN)
    assert decision.original is None
    assert not decision.refused
    assert [finding.rule for finding in decision.findings] == ["TOY-2"]


def test_an_active_job_waits_again_and_remembers_that_it_was_active() -> None:
    decision = decide(subject(state="active", payload="x"), KEYSPACE, PLAN)
    assert decision.job is not None
    assert decision.job.state is State.WAITING
    assert decision.job.extra["migration"] == {"state": "active"}
    assert decision.job.position is None


def test_an_active_job_stays_where_the_user_wants_it_to() -> None:
    decision = decide(subject(state="active", payload="x"), KEYSPACE, evolve(PLAN, active=Active.REFUSE))
    assert decision.refused
    assert [finding.rule for finding in decision.findings] == [RULE_ACTIVE]


@pytest.mark.parametrize(
    ("payload", "lossy", "goes"),
    [("warning", False, False), ("warning", True, True), ("error", True, False), ("fine", False, True)],
)
def test_an_obstacle_stops_a_job_unless_it_is_a_mere_loss_and_the_user_accepts_losses(
    payload: str, lossy: bool, goes: bool
) -> None:
    decision = decide(subject(state="waiting", payload=payload), KEYSPACE, evolve(PLAN, lossy=lossy))
    assert (decision.job is not None) is goes
    assert bool(decision.findings) is (payload != "fine")


def address(**change: object) -> Address:
    return evolve(Address(Kind.TCP, (("host", 6379),), family="kue", prefix="q"), **change)


def test_a_plan_s_epoch_tells_keyspaces_apart_and_knows_no_credentials() -> None:
    source, target = address(), address(prefix="other")
    epoch = Plan.between(source, target, 0).epoch
    assert Plan.between(evolve(source, password="secret", username="u"), evolve(target, options={"lease": 3.0}), 5).epoch == epoch
    others = [
        Plan.between(target, source, 0),
        Plan.between(evolve(source, db=1), target, 0),
        Plan.between(source, evolve(target, hosts=(("host", 6380),)), 0),
        Plan.between(source, evolve(target, prefix="third"), 0),
        Plan.between(source, evolve(target, family="ferryman"), 0),
    ]
    assert epoch not in {other.epoch for other in others}
    assert len({other.epoch for other in others}) == len(others)


def test_a_keyspace_is_not_migrated_onto_itself() -> None:
    with pytest.raises(UsageError, match="same keyspace") as caught:
        Plan.between(address(password="secret"), address(), 0)
    assert "secret" not in str(caught.value)


def test_a_plan_takes_over_the_choices_of_an_earlier_run() -> None:
    first = evolve(PLAN, active=Active.REFUSE, lossy=True, now_ms=7)
    assert PLAN.with_choices(first.choices()) == first


def decision_on(job_id: str, state: State, rule: str | None = None) -> Decision:
    job = Job(job_id, "mail", "mail", state)
    finding = Finding(rule or "", Severity.ERROR, job_id, "", None, "") if rule else None
    return Decision(job, None if rule else job, (finding,) if finding else ())


def test_a_summary_counts_every_job_once_and_adds_up_from_parts() -> None:
    whole, left, right = Summary(), Summary(), Summary()
    for half, decision, written in [
        (left, decision_on("1", State.WAITING), True),
        (left, decision_on("2", State.FAILED, "R-1"), False),
        (right, decision_on("3", State.ACTIVE), True),
        (right, decision_on("4", State.WAITING), False),
        (right, Decision(None, None), False),
    ]:
        whole.count(decision, written=written)
        half.count(decision, written=written)
    left.merge(right)
    assert left == whole
    assert (whole.read, whole.written, whole.skipped, whole.requeued) == (4, 2, 2, 1)
    assert whole.by_state == {"waiting": 1, "active": 1}
    assert whole.refused == {"R-1": ["2"]}
    assert Summary.from_dict(whole.to_dict()) == whole


def test_a_summary_names_the_same_refused_jobs_in_whatever_order_they_come() -> None:
    forward, backward = Summary(), Summary()
    ids = [f"{number:03}" for number in range(REFUSED_SAMPLES * 2)]
    for job_id in ids:
        forward.count(decision_on(job_id, State.FAILED, "R-1"), written=False)
    for job_id in reversed(ids):
        backward.count(decision_on(job_id, State.FAILED, "R-1"), written=False)
    assert forward == backward
    assert forward.refused["R-1"] == ids[:REFUSED_SAMPLES]


def test_a_census_adds_up_from_parts() -> None:
    whole, left, right = Census(), Census(), Census()
    for half, job in [(left, Job("1", "a", "a", State.WAITING)), (right, Job("2", "b", "b", State.FAILED))]:
        whole.count(job)
        half.count(job)
    left.merge(right)
    assert left == whole
