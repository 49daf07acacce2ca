"""Sound kue jobs in a table are those that the reader makes of each by itself."""

from __future__ import annotations

from ferryman.compat.kue import FAMILY
from ferryman.compat.kue.keys import padded
from ferryman.schema.columnar.jobtable import JobTable
from ferryman.schema.fact import Entry
from ferryman.schema.family import Keyspace
from ferryman.schema.prefilter import Member
from ferryman.schema.totals import Totals
from hypothesis import event, given, settings
from hypothesis import strategies as st

from ....support.effort import examples
from ....support.prefiltering import Keys, accept, accepted_jobs
from ....support.tables import assert_tables
from ..strategies import fields, texts
from ..test_prefilter import ALL_JOBS, NOW, PREFIX, edges, stored_as

KEYSPACE = Keyspace(FAMILY, PREFIX, NOW, Totals())
PREFILTER = FAMILY.prefilter(PREFIX, NOW, for_transfer=True)
BATCH = FAMILY.batch_prefilter(PREFIX, NOW, for_transfer=True)

numbers = st.one_of(
    st.sampled_from([b"0", b"1", b"2", b"07", b"100", b"1.0", b"1e3", b"-0", b"-0.0", b"-5", b"x"]),
    st.sampled_from([b"9" * 18, b"9" * 19, b"1" * 20]),
    st.integers(0, 2 * NOW).map(lambda number: b"%d" % number),
)


def stored(job_id: int, record: dict[bytes, bytes], rank: int, lines: list[bytes], lease: float = NOW + 1_000) -> Keys | None:
    """The keys of the job with this record, if it is accepted. ``lease``: its score as an active job."""
    accepted = accept(PREFILTER, record)
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
    tables = assert_tables(KEYSPACE, PREFILTER, BATCH.tables, filter(None, jobs))
    event(f"{base[b'state'].decode()}, tables: {len(tables)}, extra: {any('extra' in table.columns for table in tables)}")


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
