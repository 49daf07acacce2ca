"""Facts in files come back by job: all of them, or those of a few jobs, of which alone rows are made."""

from __future__ import annotations

from pathlib import Path

from ferryman.migrations.engine.fact_files import BY_JOB
from ferryman.migrations.engine.groups import Groups
from ferryman.schema.fact import Fact, FactKind
from ferryman.schema.jobnumber import number_of

BUCKETS = 2


def fact(job_id: str, role: str) -> Fact:
    return Fact(FactKind.NOTE, role, b"key", "set", job_id)


def test_the_jobs_of_which_some_row_has_a_word_come_with_all_their_rows(tmp_path: Path) -> None:
    facts = [fact(str(number), role) for number in range(20) for role in ("record", "needed" if number % 7 == 0 else "held")]
    groups = Groups(BY_JOB, tuple(BY_JOB.write(facts, str(tmp_path), BUCKETS)), BUCKETS)
    wanted = [groups.numbers(bucket, "role", {"needed", "claimed"}) for bucket in range(BUCKETS)]
    assert sorted(number for each in wanted for number in each.to_pylist()) == sorted(
        number_of("", name) for name in ("0", "7", "14")
    )
    found = {group[0].job_id: group for bucket in range(BUCKETS) for group in groups.of(bucket, wanted[bucket])}
    assert found == {name: [fact(name, "record"), fact(name, "needed")] for name in ("0", "7", "14")}
    assert sum(len(list(groups.of(bucket))) for bucket in range(BUCKETS)) == 20


def test_no_row_has_a_word_that_nobody_said(tmp_path: Path) -> None:
    groups = Groups(BY_JOB, tuple(BY_JOB.write([fact("1", "record")], str(tmp_path), BUCKETS)), BUCKETS)
    for bucket in range(BUCKETS):
        numbers = groups.numbers(bucket, "role", {"needed"})
        assert not len(numbers)
        assert list(groups.of(bucket, numbers)) == []
