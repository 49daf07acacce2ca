"""Jobs between which a comparison would find a difference have other digests, so that no others need to be compared."""

from __future__ import annotations

from typing import Any

from attrs import evolve
from ferryman.compat.kue import FAMILY as KUE
from ferryman.migrations.compare import differences
from ferryman.migrations.engine.job_hasher import JobHasher
from ferryman.schema.job import JOB_FIELDS, Job, State
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ..compat.kue.strategies import jobs
from ..support.effort import examples
from ..support.prefiltering import table_of
from ..support.toy import TOY

KEY = bytes(16)


def digest(job: Job, target: Any) -> bytes:
    return JobHasher(target, KEY).digest(job)


@given(jobs(), jobs(), st.sets(st.sampled_from(JOB_FIELDS), max_size=2), st.sampled_from([KUE, TOY]))
def test_jobs_that_differ_have_other_digests_and_the_same_jobs_the_same(
    job: Job, other: Job, fields: set[str], target: Any
) -> None:
    changed = evolve(job, **{name: getattr(other, name) for name in fields})
    found = list(differences(job, changed, target))
    event(f"differ: {bool(found)}")
    same = digest(job, target) == digest(changed, target)
    assert not (same and found)
    # Equal numbers of two types may have two digests: a comparison then acquits the job.
    assert same or repr(job) != repr(changed)


def test_numbers_of_any_size_and_kind_are_told_apart() -> None:
    job = Job("7", "mail", "mail", State.WAITING)
    ints = [sign * (2**power + more) for power in (0, 31, 63, 64, 80) for more in (-1, 0, 1) for sign in (-1, 1)]
    assert len({digest(evolve(job, created_at=number), KUE) for number in ints}) == len(set(ints))
    floats = [0.0, -0.0, 0.5, 1e-300, float("inf")]
    assert len({digest(evolve(job, progress=number), KUE) for number in floats}) == len(floats)


def test_where_one_field_ends_another_begins() -> None:
    job = Job("7", "mail", "mail", State.WAITING)
    assert digest(evolve(job, id="71", queue="ail"), KUE) != digest(evolve(job, id="7", queue="1ail"), KUE)


def test_no_text_is_taken_for_another() -> None:
    job = Job("7", "mail", "mail", State.WAITING)
    names = ["\ud800", "\udced\udca0\udc80", "é", "\udcc3\udca9", "n", ""]
    assert len({digest(evolve(job, error=name), KUE) for name in names}) == len(names)


@settings(max_examples=examples(300))
@given(st.lists(jobs(), min_size=1, max_size=3), st.sets(st.sampled_from(JOB_FIELDS), max_size=3), st.sampled_from([KUE, TOY]))
def test_digests_of_a_table_are_those_of_its_jobs(those: list[Job], fields: set[str], target: Any) -> None:
    changes = ({name: getattr(job, name) for name in fields - {"id", "queue", "state"}} for job in those)
    those = [evolve(those[0], id=str(number), **change) for number, change in enumerate(changes)]
    table = table_of(those)
    event(f"table: {table is not None}")
    if table is not None:
        assert JobHasher(target, KEY).digest_table(table).to_pylist() == [digest(job, target) for job in those]


def test_each_comparison_has_a_key_of_its_own() -> None:
    job = Job("7", "mail", "mail", State.WAITING)
    assert len({JobHasher(KUE).digest(job) for _ in range(3)}) == 3
    assert "key" not in repr(JobHasher(KUE))
