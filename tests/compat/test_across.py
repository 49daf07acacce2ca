"""Any system to any other and back: what the target can't express is named first, and what it keeps aside comes back."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import pytest
from attrs import evolve
from ferryman.migrations.generate import Filling, fill
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan, requeued
from ferryman.schema.connection.address import Address
from ferryman.schema.family import get_family
from ferryman.schema.job import Job, State
from ferryman.schema.rule import Finding, Severity
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..support.captures import dump, survey
from ..support.families import GENERATING
from ..support.keyspace import store
from ..support.mending import NOW
from ..support.servers import Server, installed_servers

JOBS = 30
ENGINE = LocalEngine()


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all pairs: what is compared here does not depend on its make."""
    with installed_servers()[-1].start(tmp_path_factory.mktemp("across")) as server:
        yield server


def standing(address: Address) -> dict[tuple[str, str], Job]:
    return {(job.queue, job.id): job for job in ENGINE.jobs(address, NOW)}


def carry(source: Address, target: Address, *, lossy: bool, dry_run: bool = False) -> tuple[int, list[Finding]]:
    """Migrates: how many jobs were written, and what was said."""
    findings: list[Finding] = []
    plan = Plan.between(source, target, NOW, lossy=lossy)
    summary = ENGINE.migrate(source, target, plan, findings.append, dry_run=dry_run)
    return summary.written, findings


@pytest.mark.parametrize(("here", "there"), list(permutations(GENERATING, 2)))
def test_a_keyspace_goes_over_and_comes_back(lasting: Server, here: str, there: str) -> None:
    lasting.client().flushall()
    source = Address.parse(lasting.url(0, family=here))
    target = Address.parse(lasting.url(1, family=there))
    back = Address.parse(lasting.url(2, family=here))
    fill(source, Filling(JOBS, 7, NOW))
    original = {place: requeued(job, here, NOW) if job.state is State.ACTIVE else job for place, job in standing(source).items()}
    incompatibilities = {place: list(get_family(there).incompatibilities(job)) for place, job in original.items()}
    refused = {place for place, found in incompatibilities.items() if any(each.severity is Severity.ERROR for each in found)}

    # Without --lossy, only what the target expresses whole goes; the rest is named, rule by rule, before anything is written.
    written, said = carry(source, target, lossy=False, dry_run=True)
    assert written == sum(not found for found in incompatibilities.values())
    named = {(finding.rule, finding.job_id) for finding in said}
    assert named >= {(each.rule, job_id) for (_, job_id), found in incompatibilities.items() for each in found}
    assert lasting.client(1).dbsize() == 0

    written, said = carry(source, target, lossy=True)
    assert written == len(original) - len(refused)
    assert {finding.job_id for finding in said} >= {job_id for _, job_id in refused}
    if not written:
        return
    differences: list[object] = []
    ENGINE.verify(source, target, Plan.between(source, target, NOW, lossy=True), differences.append)
    assert differences == []

    came, said = carry(target, back, lossy=True)
    assert (came, [finding for finding in said if finding.severity is Severity.ERROR]) == (written, [])
    assert standing(back) == {place: job for place, job in original.items() if place not in refused}


# Any job at all

lines = st.text(max_size=8)
times = st.one_of(st.none(), st.integers(1_500_000_000_000, 1_900_000_000_000))
texts = [b"", b"{}", b'{"a":[1,null]}', b'"\xc3\xbc"', b"42", b"false", b"not JSON", b"\x80\x04\x95", b"[1,2"]
payloads = st.sampled_from([None, *texts])


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """A job of no system in particular: every field has what Job allows, together they need not make sense."""
    state = draw(st.sampled_from([state for state in State if state is not State.ACTIVE]))
    # kombu takes a job that is due for one that waits: it has no other place for it.
    due = st.one_of(st.none(), st.integers(NOW + 1, NOW + 10**9)) if state is State.SCHEDULED else times
    queue = draw(st.sampled_from(["mail", "a:b", "über ✓", "celery", "q jobs"]))
    return Job(
        id=draw(st.sampled_from(["7", "4c1ff1b6-3bd2-11f1-9829-5e70f3e6c8f7", "job a:1", "ü"])),
        queue=queue,
        name=draw(st.one_of(st.just(queue), st.just("proj.tasks.add"), lines)),
        state=state,
        priority=draw(st.one_of(st.none(), st.integers(-300, 300), st.floats(-10, 10))),
        payload=draw(payloads),
        created_at=draw(times),
        updated_at=draw(times),
        due_at=draw(due),
        started_at=draw(times),
        finished_at=draw(times),
        attempts=draw(st.one_of(st.none(), st.integers(0, 9))),
        max_attempts=draw(st.one_of(st.none(), st.integers(0, 9))),
        progress=draw(st.one_of(st.none(), st.floats(0, 1))),
        result=draw(payloads),
        error=draw(st.one_of(st.none(), lines)),
        worker=draw(st.one_of(st.none(), lines)),
        tags=tuple(draw(st.lists(lines, max_size=2, unique=True))),
        depends_on=tuple(draw(st.lists(st.sampled_from(["8", "9", "x"]), max_size=2, unique=True))),
        unique_key=draw(st.one_of(st.none(), lines)),
        ttl=draw(st.one_of(st.none(), st.integers(0, 10**7))),
        logs=tuple(draw(st.lists(st.binary(max_size=8), max_size=2))),
        history=tuple(draw(st.lists(st.dictionaries(lines, st.integers(0, 9), max_size=2), max_size=2))),
        extra=draw(st.sampled_from([{}, {"other": {"field": b"\xff", "numbers": [1, 2.5, None]}}])),
    )


@pytest.mark.parametrize("name", GENERATING)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(job=jobs())
def test_a_job_that_is_not_refused_reads_back_as_it_was(lasting: Server, name: str, job: Job) -> None:
    family = get_family(name)
    if any(finding.severity is Severity.ERROR for finding in family.incompatibilities(job)):
        return
    client = lasting.client()
    client.flushdb()
    store(client, family, family.default_prefix, [job], NOW)
    seen = survey(family, dump(client).values(), family.default_prefix, NOW)
    found = [family.read(subject, seen.keyspace) for subject in seen.subjects.values()]
    (again,) = [each for each in found if each is not None]
    assert {**again.extra, name: None} == {**job.extra, name: None}
    assert evolve(again, extra={}) == evolve(job, extra={})
