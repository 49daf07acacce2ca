"""Sound kue jobs in a table are those that the reader makes of each by itself."""

from __future__ import annotations

from collections import defaultdict
from itertools import compress

from attrs import evolve
from ferryman.compat.kue import FAMILY
from ferryman.compat.kue.keys import padded
from ferryman.migrations.plan import Active, Plan, decide, decide_table
from ferryman.schema.columnar.jobtable import JobTable
from ferryman.schema.connection.address import Address
from ferryman.schema.fact import Entry, Subject
from ferryman.schema.family import Keyspace
from ferryman.schema.job import State
from ferryman.schema.prefilter import Member
from ferryman.schema.tagged_json import encode_tagged
from ferryman.schema.totals import Totals
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ....support.effort import examples
from ....support.prefiltering import Keys, accept, accepted_jobs, jobs_of
from ..strategies import fields, texts
from ..test_prefilter import ALL_JOBS, NOW, PREFIX, edges, stored_as

PLAN = Plan.between(Address.parse("ferryman://h/0?family=kue"), Address.parse("ferryman://h/1"), NOW)
KEYSPACE = Keyspace(FAMILY, PREFIX, NOW, Totals())
BATCH = FAMILY.batch_prefilter(PREFIX, NOW, for_transfer=True)

numbers = st.one_of(
    st.sampled_from([b"0", b"1", b"2", b"07", b"100", b"1.0", b"1e3", b"-0", b"-0.0", b"-5", b"x"]),
    st.sampled_from([b"9" * 18, b"9" * 19, b"1" * 20]),
    st.integers(0, 2 * NOW).map(lambda number: b"%d" % number),
)


def stored(job_id: int, record: dict[bytes, bytes], rank: int, lines: list[bytes], lease: float = NOW + 1_000) -> Keys | None:
    """The keys of the job with this record, if it is accepted. ``lease``: its score as an active job."""
    accepted = accept(FAMILY.prefilter(PREFIX, NOW, for_transfer=True), record)
    if accepted is None:
        return None
    member = padded(str(job_id)).encode()
    scores = [
        score if index_key.is_scored else lease
        for index_key, score in zip(accepted.group.index_keys, accepted.scores, strict=True)
    ]
    members = [
        Member(index_key.key, member, score, rank) for index_key, score in zip(accepted.group.index_keys, scores, strict=True)
    ]
    log = b"%b:job:%d:log" % (PREFIX.encode(), job_id)
    # A long one comes in parts.
    logs = [Entry(log, "list", [line], None, index) for index, line in enumerate(lines)]
    return Keys(b"%b:job:%d" % (PREFIX.encode(), job_id), record, members, logs)


@settings(max_examples=examples(500))
@given(st.data())
def test_jobs_in_a_table_are_those_that_the_reader_makes_of_each(data: st.DataObject) -> None:
    base = stored_as(data.draw(st.sampled_from(ALL_JOBS)))
    more = data.draw(st.dictionaries(fields, edges, max_size=2))
    names = sorted({**base, **more}.keys() - data.draw(st.sets(fields, max_size=1)))
    rows = data.draw(
        st.lists(
            st.tuples(
                st.none() | st.tuples(st.sampled_from(names), numbers | texts),
                st.lists(st.binary(max_size=3), max_size=2),
                st.sampled_from([NOW + 1_000.0, NOW - 9_999.0, NOW + 0.5, 2.0**60, 5.0, -5.0, 0.0, -10.0]),
            ),
            min_size=1,
            max_size=4,
        )
    )
    jobs = []
    for number, (change, lines, lease) in enumerate(rows, 1):
        record = {**base, **more} | dict([change] if change else [])
        jobs.append(stored(number, {name: record[name] for name in names}, number * 3, lines, lease))
    groups = defaultdict(list)
    for job in filter(None, jobs):
        groups[job.record[b"type"], job.record[b"state"]].append(job)
    prefilter = FAMILY.prefilter(PREFIX, NOW, for_transfer=True)
    for those in groups.values():
        accepted = accepted_jobs(those)
        read = [FAMILY.read(subject, KEYSPACE) for subject in accepted.subjects(prefilter)]
        tables = list(BATCH.tables(accepted, KEYSPACE.totals))
        event(f"{those[0].record[b'state'].decode()}, tables: {len(tables)}, kept: {any(job.extra for job in read)}")
        for table in tables:
            assert_goes_over(table, list(compress(accepted.subjects(prefilter), table.rows.tolist())))
            made, expected = jobs_of(table), list(compress(read, table.rows.tolist()))
            assert list(map(repr, made)) == list(map(repr, expected))
            assert [(job.position, job.rank) for job in made] == [(job.position, job.rank) for job in expected]
            encoded = [encode_tagged(job.extra) for job in expected]
            assert table.columns["extra"].to_list() == encoded if "extra" in table.columns else set(encoded) == {b"{}"}


def assert_goes_over(table: JobTable, subjects: list[Subject]) -> None:
    """The jobs of a table go over as each of them would by itself."""
    found = decide_table(table, PLAN)
    assert found is not None
    decision, outgoing = found
    expected = [decide(subject, KEYSPACE, PLAN) for subject in subjects]
    assert list(map(repr, jobs_of(outgoing))) == [repr(each.job) for each in expected]
    assert {(each.original.state, each.original.queue, each.job.state, each.job.queue) for each in expected} == {
        (decision.original.state, decision.original.queue, decision.job.state, decision.job.queue)
    }
    assert [(job.position, job.rank) for job in jobs_of(outgoing)] == [(each.job.position, each.job.rank) for each in expected]
    if "extra" in outgoing.columns:
        assert outgoing.columns["extra"].to_list() == [encode_tagged(each.job.extra) for each in expected]
    refusing = decide_table(table, evolve(PLAN, active=Active.REFUSE))
    assert (refusing is None) == (table.common.state is State.ACTIVE)


def tables_of(jobs: list[Keys]) -> list[JobTable]:
    return list(BATCH.tables(accepted_jobs(jobs), Totals()))


def test_ids_that_kue_could_not_have_given_out_are_read_one_by_one() -> None:
    record = stored_as(ALL_JOBS[0])
    (table,) = tables_of([stored(2**53 - 1, record, 0, []), stored(2**53, record, 1, [])])
    assert table.rows.tolist() == [True, False]


def test_all_jobs_as_kue_writes_them_are_read_from_tables() -> None:
    for number, job in enumerate(ALL_JOBS, 1):
        lease = NOW + 1_000.0 if job.ttl else -abs(float(job.priority))
        keys = stored(number, stored_as(job), 0, [b"line"], lease)
        assert keys is not None
        assert [table.rows.tolist() for table in tables_of([keys])] == [[True]]
