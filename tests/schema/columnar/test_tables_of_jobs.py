"""Jobs that were read one by one are in tables what they were."""

from __future__ import annotations

from itertools import compress

import numpy as np
from attrs import evolve
from ferryman.compat.bee.generate import generate as bee_jobs
from ferryman.compat.kickq.generate import generate as kickq_jobs
from ferryman.compat.kue.generate import generate as kue_jobs
from ferryman.compat.pjq.generate import generate as pjq_jobs
from ferryman.compat.qless.generate import generate as qless_jobs
from ferryman.schema.columnar.tables_of_jobs import FEWEST, tables_of
from ferryman.schema.job import JOB_FIELDS, Job, State
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ...compat.kue.strategies import jobs as any_jobs
from ...support.effort import examples
from ...support.prefiltering import jobs_of

NOW = 1_800_000_000_000
GENERATED = [job for jobs in (bee_jobs, kickq_jobs, kue_jobs, pjq_jobs, qless_jobs) for job in jobs(200, 3, NOW)]


def check(jobs: list[Job], fewest: int = 1, groups: list[object] | None = None) -> list[Job]:
    """Those that are in a table."""
    times = np.zeros(len(jobs), int)
    for table in tables_of(jobs, groups or [None] * len(jobs), fewest):
        mine = list(compress(jobs, table.rows.tolist()))
        assert len(table) == len(mine) >= fewest
        assert list(map(repr, jobs_of(table))) == list(map(repr, mine))
        assert [(job.position, job.rank) for job in jobs_of(table)] == [(job.position, job.rank) for job in mine]
        assert {(job.queue, job.state) for job in mine} == {(table.common.queue, table.common.state)}
        assert table.families == {name for job in mine for name in job.extra}
        times += table.rows
    assert times.max() <= 1
    return list(compress(jobs, times.tolist()))


@settings(max_examples=examples(100))
@given(
    st.lists(st.sampled_from(GENERATED) | any_jobs(), min_size=1, max_size=6),
    st.sets(st.sampled_from(JOB_FIELDS), max_size=4),
    st.lists(any_jobs(), min_size=6, max_size=6),
)
def test_jobs_in_tables_are_what_they_were(jobs: list[Job], fields: set[str], others: list[Job]) -> None:
    changed = [evolve(job, **{name: getattr(other, name) for name in fields}) for job, other in zip(jobs, others, strict=False)]
    event(f"in tables: {len(check([*jobs, *changed]))} of {2 * len(jobs)}")


def test_nearly_all_jobs_of_every_family_are_in_tables() -> None:
    assert len(check(GENERATED)) > 0.9 * len(GENERATED)


def test_a_few_of_a_kind_are_in_none() -> None:
    jobs = [Job(str(number), "mail", "mail", State.WAITING) for number in range(2 * FEWEST - 1)]
    others = [evolve(job, id=f"x{job.id}", attempts=3) for job in jobs[: FEWEST - 1]]
    assert check([*jobs, *others], FEWEST) == jobs


def test_what_no_column_holds_is_in_no_table() -> None:
    job = Job("1", "mail", "mail", State.WAITING)
    for changes in (
        {"priority": 1.5},
        {"created_at": 2**63},
        {"created_at": -(2**63)},
        {"attempts": True},
        {"id": "\udce9\udce9\ud800"},
    ):
        assert not check([evolve(job, **changes)])
    assert not check([evolve(job, error=error) for error in ("\ud800", "a")])
    assert len(check([evolve(job, error=error, created_at=2**63 - 1) for error in ("\udce9", "a")])) == 2


def test_jobs_of_two_groups_are_in_two_tables() -> None:
    jobs = [Job(str(number), "mail", "mail", State.WAITING) for number in range(10)]
    groups = [number % 2 for number in range(10)]
    assert check(jobs, 5, groups) == jobs
    assert [table.ids.to_list()[0] for table in tables_of(jobs, groups, 5)] == [b"0", b"1"]
    assert not check(jobs, 6, groups)
