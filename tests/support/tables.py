"""Tables of jobs as a family's prefilter makes them: each must say what the reader makes of every job by itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import compress

from attrs import evolve
from ferryman.migrations.plan import Active, Plan, decide, decide_table
from ferryman.schema.columnar.batch_prefilter import TableReader
from ferryman.schema.columnar.jobtable import AcceptedJobs, JobTable
from ferryman.schema.columnar.tables_of_jobs import FEWEST
from ferryman.schema.connection.address import Address
from ferryman.schema.fact import Subject
from ferryman.schema.family import Keyspace
from ferryman.schema.job import State
from ferryman.schema.prefilter import Prefilter
from ferryman.schema.tagged_json import encode_tagged
from ferryman.schema.totals import Totals

from .prefiltering import Keys, accept, accepted_jobs, jobs_of

TablesOf = Callable[[AcceptedJobs, Totals], Iterable[JobTable]]


def assert_tables(keyspace: Keyspace, prefilter: Prefilter, tables_of: TablesOf, jobs: Iterable[Keys]) -> list[JobTable]:
    """The tables of these accepted jobs are right; returns them."""
    groups: defaultdict[Hashable, list[Keys]] = defaultdict(list)
    for job in jobs:
        accepted = accept(prefilter, job.record, job.key)
        assert accepted is not None
        groups[accepted.group, tuple(sorted(job.record))].append(job)
    return [table for those in groups.values() for table in _right_tables(keyspace, prefilter, tables_of, those)]


def rows_in_tables(keyspace: Keyspace, prefilter: Prefilter, jobs: Iterable[Keys]) -> int:
    """How many of these accepted jobs are in tables, all of which are right. There are enough of each that tables are made."""
    assert isinstance(prefilter, TableReader)
    many = [job for job in jobs for _ in range(FEWEST)]
    return sum(map(len, assert_tables(keyspace, prefilter, prefilter.tables, many))) // FEWEST


def _right_tables(keyspace: Keyspace, prefilter: Prefilter, tables_of: TablesOf, jobs: Sequence[Keys]) -> list[JobTable]:
    accepted = accepted_jobs(jobs)
    subjects = list(accepted.subjects(prefilter))
    read = [keyspace.family.read(subject, keyspace) for subject in subjects]
    tables = list(tables_of(accepted, keyspace.totals))
    assert not tables or sum(table.rows for table in tables).max() == 1, "each job is in one table at most"
    for table in tables:
        rows = table.rows.tolist()
        _assert_goes_over(table, list(compress(subjects, rows)), keyspace)
        made, expected = jobs_of(table), list(compress(read, rows))
        assert list(map(repr, made)) == list(map(repr, expected))
        assert [(job.position, job.rank) for job in made] == [(job.position, job.rank) for job in expected]
        encoded = [encode_tagged(job.extra) for job in expected]
        assert table.columns["extra"].to_list() == encoded if "extra" in table.columns else set(encoded) == {b"{}"}
    return tables


def _assert_goes_over(table: JobTable, subjects: list[Subject], keyspace: Keyspace) -> None:
    """The jobs of a table go over as each of them would by itself."""
    source = Address.parse(f"ferryman://h/0?family={keyspace.family.name}")
    plan = Plan.between(source, Address.parse("ferryman://h/1"), keyspace.now_ms)
    found = decide_table(table, plan)
    if not table.common.queue or table.common.state is State.BLOCKED:
        assert found is None, "a queue without a name is none, and nothing of ours blocks without a job: said of each"
        return
    assert found is not None
    decision, outgoing = found
    expected = [decide(subject, keyspace, plan) for subject in subjects]
    assert list(map(repr, jobs_of(outgoing))) == [repr(each.job) for each in expected]
    assert {(each.original.state, each.original.queue, each.job.state, each.job.queue) for each in expected} == {
        (decision.original.state, decision.original.queue, decision.job.state, decision.job.queue)
    }
    assert [(job.position, job.rank) for job in jobs_of(outgoing)] == [(each.job.position, each.job.rank) for each in expected]
    if "extra" in outgoing.columns:
        assert outgoing.columns["extra"].to_list() == [encode_tagged(each.job.extra) for each in expected]
    refusing = decide_table(table, evolve(plan, active=Active.REFUSE))
    assert (refusing is None) == (table.common.state is State.ACTIVE)
