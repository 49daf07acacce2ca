"""Jobs in a table are written as each of them by itself, and of no job with an obstacle a table is taken."""

from __future__ import annotations

from itertools import groupby

from attrs import evolve
from ferryman.compat.kue.generate import generate as kue_jobs
from ferryman.schema.family import Target
from ferryman.schema.job import JOB_FIELDS, Job, State
from ferryman.schema.jobtable import ATTRIBUTES, JobTable
from ferryman.schema.native import FAMILY
from ferryman.schema.totals import Totals
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ...compat.kue.strategies import jobs as any_jobs

NOW = 1_800_000_000_000
TARGET = Target("ferryman", NOW, fresh=True)
JOBS = [job for job in kue_jobs(400, 3, NOW) if job.state is not State.ACTIVE]


def table_of(jobs: list[Job]) -> JobTable:
    """Jobs of one queue and state as a table; what is the same in all has no column, but for their ids."""
    first = jobs[0]
    columns = {name: [getattr(job, name) for job in jobs] for name in ATTRIBUTES}
    differing = {
        name: column for name, column in columns.items() if name == "id" or any(repr(each) != repr(column[0]) for each in column)
    }
    return JobTable(first, differing)


def check(jobs: list[Job]) -> None:
    table, written, expected = table_of(jobs), Totals(), Totals()
    assert list(map(repr, table.jobs())) == list(map(repr, jobs))
    if not FAMILY.takes(table):
        event("not taken")
        return
    assert not any(list(FAMILY.obstacles(job)) for job in jobs)
    commands = FAMILY.write_table(table, TARGET, written)
    event(f"written: {commands is not None}")
    if commands is None:
        assert written == Totals()
        return
    assert list(map(list, commands)) == [FAMILY.write(job, TARGET) for job in jobs]
    for job in jobs:
        FAMILY.tally_written(job, expected)
    assert written == expected


@settings(max_examples=500)
@given(
    st.sampled_from(JOBS),
    st.lists(any_jobs(), min_size=1, max_size=4),
    st.sets(st.sampled_from(JOB_FIELDS), max_size=3),
    st.data(),
)
def test_jobs_in_a_table_are_written_as_each_of_them(like, others, fields, data) -> None:
    fields -= {"queue", "state"}
    rows = [evolve(like, **{name: getattr(other, name) for name in fields if data.draw(st.booleans())}) for other in others]
    position, rank = (
        data.draw(st.lists(values, min_size=len(rows), max_size=len(rows)))
        for values in (st.integers(0, 2**45) | st.none(), st.integers(-256, 255))
    )
    check([evolve(job, position=place, rank=turn) for job, place, turn in zip(rows, position, rank, strict=True)])


@given(st.lists(any_jobs(), min_size=1, max_size=3))
def test_any_jobs_at_all(jobs) -> None:
    check([evolve(job, queue=jobs[0].queue, state=jobs[0].state) for job in jobs])


def test_nearly_all_jobs_are_written_from_tables() -> None:
    def kind(job: Job) -> tuple[object, ...]:
        return (
            job.queue,
            str(job.state),
            job.result is None,
            job.worker is None,
            job.error is None,
            job.ttl is None,
            job.started_at is None,
        )

    ranked = [evolve(job, rank=job.rank or 0) for job in JOBS]
    for _, group in groupby(sorted(ranked, key=kind), key=kind):
        assert FAMILY.write_table(table_of(list(group)), TARGET, Totals()) is not None


def test_what_may_stand_at_the_target_is_taken_away_job_by_job() -> None:
    table = table_of([evolve(JOBS[0], rank=0)])
    assert FAMILY.write_table(table, Target("ferryman", NOW), Totals()) is None
