"""Jobs in a table are written as each of them by itself, and read so; one with a job that has an incompatibility is not taken."""

from __future__ import annotations

from itertools import compress, groupby

from attrs import evolve
from ferryman.compat.bee.generate import generate as bee_jobs
from ferryman.compat.kickq.generate import generate as kickq_jobs
from ferryman.compat.kue.generate import generate as kue_jobs
from ferryman.compat.pjq.generate import generate as pjq_jobs
from ferryman.compat.qless.generate import generate as qless_jobs
from ferryman.schema.fact import Entry
from ferryman.schema.family import Keyspace, Target
from ferryman.schema.job import JOB_FIELDS, Job, State
from ferryman.schema.native import FAMILY
from ferryman.schema.native.columnar.table import SCORES
from ferryman.schema.prefilter import Member
from ferryman.schema.totals import Totals
from hiredis import pack_command
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ....compat.kue.strategies import jobs as any_jobs
from ....support.effort import examples
from ....support.prefiltering import Keys, accept, accepted_jobs, jobs_of, table_of
from ..strategies import fields as field_names
from ..strategies import texts
from ..test_prefilter import MIGRATED, PREFIX, PUBLISHED, stored

NOW = 1_800_000_000_000
TARGET = Target("ferryman", NOW, fresh=True)
JOBS = [job for job in kue_jobs(400, 3, NOW) if job.state is not State.ACTIVE]
FOREIGN = [
    job
    for jobs in (bee_jobs, kickq_jobs, pjq_jobs, qless_jobs)
    for job in jobs(100, 3, NOW)
    if job.state in SCORES and job.payload
]


def check(jobs: list[Job]) -> None:
    table, written, expected = table_of(jobs), Totals(), Totals()
    if table is None:
        event("no table")
        return
    assert list(map(repr, jobs_of(table))) == list(map(repr, jobs))
    if not FAMILY.can_write_table(table):
        event("not taken")
        return
    assert not any(list(FAMILY.incompatibilities(job)) for job in jobs)
    commands = FAMILY.write_table(table, TARGET, written)
    event(f"written: {commands is not None}")
    if commands is None:
        assert written == Totals()
        return
    singly = [FAMILY.write(job, TARGET) for job in jobs]
    head = b"*4\r\n$4\r\nZADD\r\n$%d\r\n%b\r\n" % (len(commands.zset), commands.zset)
    made = zip(commands.commands.to_list(), commands.members.to_list(), strict=True)
    assert [alone + head + member for alone, member in made] == [b"".join(map(pack_command, those)) for those in singly]
    assert {commands.commands_per_job + 1} == set(map(len, singly))
    for job in jobs:
        FAMILY.tally_written(job, expected)
    assert written == expected


@settings(max_examples=examples(500))
@given(
    st.sampled_from(JOBS) | st.sampled_from(FOREIGN),
    st.lists(any_jobs(), min_size=1, max_size=4),
    st.sets(st.sampled_from(JOB_FIELDS), max_size=3),
    st.data(),
)
def test_jobs_in_a_table_are_written_as_each_of_them(like, others, fields, data) -> None:
    fields -= {"queue", "state"}
    rows = [evolve(like, **{name: getattr(other, name) for name in fields if data.draw(st.booleans())}) for other in others]
    position, rank = (
        data.draw(st.lists(values, min_size=len(rows), max_size=len(rows)))
        for values in (st.integers(0, 2**45) | st.none(), st.integers(-256, 255) | st.none())
    )
    check([evolve(job, position=position, rank=rank) for job, position, rank in zip(rows, position, rank, strict=True)])


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
    assert FAMILY.write_table(table, Target("ferryman", NOW, fresh=True, generated=True), Totals()) is None


# Reading

KEYSPACE = Keyspace(FAMILY, PREFIX, NOW, Totals())
BATCH = FAMILY.batch_prefilter(PREFIX, NOW)
UNHELD = [job for job in (*MIGRATED, *PUBLISHED[:60], *FOREIGN) if job.state in SCORES]

numbers = st.one_of(
    st.sampled_from([b"0", b"-1", b"+1", b"07", b"1_0", b" 1", b"1.0", b"", b"9" * 18, b"9" * 19, b"1" * 5000, b"%d" % 2**53]),
    st.integers(-(2**64), 2**64).map(lambda number: b"%d" % number),
)
moved = st.sampled_from([0.0, -0.0, 0.5, 1.0, 2.0**45, 2.0**40, 2.0**53 + 2, 1e300, float("inf")])


def keys_of(job: Job, number: int, changes: dict[bytes, bytes], missing: set[bytes], score: float | None) -> Keys | None:
    """The keys of a job after some changes, if it is accepted as it stands there."""
    record, (zset,) = stored(evolve(job, id=str(number)))
    value = {name: text for name, text in {**record.value, **changes}.items() if name not in missing}
    if not value:
        return None
    member = zset.value[0][0]
    entry = Entry(zset.key, "zset", [(member, zset.value[0][1] if score is None else score)])
    prefilter = FAMILY.prefilter(PREFIX, NOW)
    if accept(prefilter, value) is None or prefilter.index_members(entry).numbers == [None]:
        return None
    return Keys(record.key, value, [Member(zset.key, member, entry.value[0][1], 3 * number)])


def check_read(those: list[Keys]) -> int:
    """How many of the jobs are in tables."""
    accepted, prefilter = accepted_jobs(those), FAMILY.prefilter(PREFIX, NOW)
    subjects, tabled = list(accepted.subjects(prefilter)), 0
    for table in BATCH.tables(accepted, KEYSPACE.totals):
        mine = list(compress(subjects, table.rows.tolist()))
        read, made = [FAMILY.read(subject, KEYSPACE) for subject in mine], jobs_of(table)
        assert list(map(repr, made)) == list(map(repr, read))
        assert [(job.position, job.rank) for job in made] == [(job.position, job.rank) for job in read]
        assert [(subject.scope, subject.job_id) for subject in mine] == [(table.scope, job.id) for job in made]
        assert table.families >= {name for job in made for name in job.extra}
        tabled += len(table)
    return tabled


@settings(max_examples=examples(800))
@given(st.sampled_from(UNHELD), st.sets(field_names, max_size=1), st.data())
def test_jobs_in_a_table_are_those_that_the_reader_makes_of_each(job, missing, data) -> None:
    names = data.draw(st.sets(field_names, max_size=1))
    found = []
    for number in range(1, 1 + data.draw(st.integers(1, 3))):
        changes = {name: data.draw(numbers | texts) for name in names}
        found.append(keys_of(job, number, changes, missing, data.draw(st.none() | moved)))
    those = [keys for keys in found if keys is not None]
    if those:
        event(f"in tables: {check_read(those)}, changed: {bool(names or missing)}")


@given(st.lists(st.sampled_from(MIGRATED), min_size=1, max_size=20))
def test_migrated_jobs_are_read_from_tables(jobs) -> None:
    def kind(keys: Keys) -> tuple[object, ...]:
        return keys.members[0].key, tuple(keys.record)

    found = [keys_of(job, number, {}, set(), None) for number, job in enumerate(jobs, 1) if job in UNHELD]
    for _, group in groupby(sorted(filter(None, found), key=kind), key=kind):
        those = list(group)
        assert check_read(those) == len(those)


def test_a_queue_of_the_other_order_is_read_job_by_job() -> None:
    keys, totals = keys_of(UNHELD[0], 1, {}, set(), None), Totals()
    totals.name("descending", [UNHELD[0].queue])
    assert not list(BATCH.tables(accepted_jobs([keys]), totals))


def test_a_job_that_holds_its_dedup_key_is_written_by_itself() -> None:
    for unique_key in ("order 7", ""):
        job = evolve(JOBS[0], rank=0, unique_key=unique_key)
        for state, is_written in ((State.FAILED, True), (State.WAITING, False)):
            table = table_of([evolve(job, state=state)])
            assert (FAMILY.write_table(table, TARGET, Totals()) is not None) == is_written
