"""Jobs that a worker has for ever: keys can't tell whether it lives, so the user chooses which of them wait again."""

from __future__ import annotations

import pytest
import redis
from ferryman.migrations.repair import Outcome
from ferryman.schema.choices import Choices, NotChosen
from ferryman.schema.errors import Unrepairable
from ferryman.schema.family import get_family
from ferryman.schema.job import Job, State
from ferryman.testing.faults import StoredKeyspace, changed_keys
from ferryman.testing.keyspaces import dump, read_keyspace

from ..support.mending import NOW, stored_in
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

AGE = 300_000_000
"""ms; older than any sign of a generated job's worker."""

ACTIVE_FOR_EVER = [
    ("bee", "BEE-17"),
    ("kickq", "KICKQ-18"),
    ("kombu", "KOMBU-5"),
    ("kue", "KUE-15"),
    ("kue", "KUE-16"),
    ("pjq", "PJQ-25"),
    ("qless", "QLESS-12"),
]


def suffering(stored: StoredKeyspace, rule: str) -> Job:
    """An active job at which the rule is broken."""
    made = [job for job in stored.generate(120, 3) if job.state is State.ACTIVE]
    return next(job for job in made if stored.inject(rule, job))


def standing(stored: StoredKeyspace, job: Job) -> Job:
    (found,) = (
        each
        for each in read_keyspace(stored.family, dump(stored.client).values(), stored.address.prefix, stored.now_ms).jobs()
        if (each.id, each.queue) == (job.id, job.queue)
    )
    return found


@pytest.mark.parametrize(("name", "rule"), ACTIVE_FOR_EVER)
def test_nothing_is_taken_from_a_worker_unless_somebody_chooses_it(
    server: Server, client: redis.Redis, name: str, rule: str
) -> None:
    family = get_family(name)
    stored = stored_in(server, client, family, family.default_prefix)
    job = suffering(stored, rule)
    before = dump(client)
    for choices, outcome in ((Choices(), Outcome.UNMENDABLE), (Choices(older_than=10**15), Outcome.SPARED)):
        repairs = {each.finding.job_id: each for each in stored.repair(rule, choices=choices)}
        assert repairs[job.id].outcome is outcome
        assert repairs[job.id].reason
        assert changed_keys(before, dump(client)) == set()
    assert "--older-than" in (stored.repair(rule)[0].reason or "")


@pytest.mark.parametrize(("name", "rule"), ACTIVE_FOR_EVER)
def test_a_job_of_which_its_worker_gives_no_sign_waits_again(server: Server, client: redis.Redis, name: str, rule: str) -> None:
    family = get_family(name)
    stored = stored_in(server, client, family, family.default_prefix)
    job = suffering(stored, rule)
    repairs = {each.finding.job_id: each for each in stored.repair(rule, choices=Choices(older_than=0))}
    assert repairs[job.id].outcome is Outcome.MENDED
    again = standing(stored, job)
    assert again.state in (State.WAITING, State.SCHEDULED)
    assert (again.payload, again.priority) == (job.payload, job.priority)
    assert not [finding for finding in stored.findings() if finding.rule == rule and finding.job_id == job.id]


@pytest.mark.parametrize(("name", "rule"), [("bee", "BEE-17"), ("kue", "KUE-15"), ("pjq", "PJQ-25"), ("qless", "QLESS-12")])
def test_the_jobs_of_one_worker_wait_again(server: Server, client: redis.Redis, name: str, rule: str) -> None:
    family = get_family(name)
    stored = stored_in(server, client, family, family.default_prefix)
    job = suffering(stored, rule)
    assert job.worker
    others = stored.repair(rule, choices=Choices(workers=frozenset({"somebody else"})))
    assert {each.outcome for each in others} == {Outcome.SPARED}
    repairs = {each.finding.job_id: each for each in stored.repair(rule, choices=Choices(workers=frozenset({job.worker})))}
    assert repairs[job.id].outcome is Outcome.MENDED
    assert standing(stored, job).state is State.WAITING


def test_where_no_key_names_the_worker_that_is_said() -> None:
    with pytest.raises(Unrepairable, match="no key says which worker"):
        Choices(workers=frozenset({"w"})).check(NOW, NOW - AGE, None)
    with pytest.raises(Unrepairable, match="no key says since when"):
        Choices(older_than=1).check(NOW, None, "w")


def test_a_job_must_fit_both_choices() -> None:
    choices = Choices(older_than=1000, workers=frozenset({"w"}))
    choices.check(NOW, NOW - 1001, "w")
    for since, worker in ((NOW - 1000, "w"), (NOW - 1001, "v")):
        with pytest.raises(NotChosen):
            choices.check(NOW, since, worker)
