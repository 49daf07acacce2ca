"""A step: rows of the attempts that count, once each, and nothing of the others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ferryman.schema.errors import FerrymanError, ServerError
from ferryman.schema.rule import Finding, Severity
from ferryman.spark.step import COMPLETE, Batches, run_light_step, run_step, with_summary
from ferryman.spark.tables import FINDINGS, batches
from pyspark import TaskContext
from pyspark.sql import SparkSession

PARTS = 3


def finding(partition: int, number: int) -> Finding:
    return Finding("KUE-1", Severity.ERROR, str(number), f"key {partition}", None, "said twice")


def task(_rows: Batches) -> Batches:
    """Finds two jobs a partition. The first attempt fails, after it has yielded both; partitions know their own numbers."""
    context = TaskContext.get()
    partition = context.partitionId()
    yield from with_summary(
        batches(FINDINGS, (finding(partition, number) for number in range(2))), FINDINGS, lambda: f"part {partition}"
    )
    if context.attemptNumber() == 0:
        raise ServerError("Error: the server has gone")


def failing(_rows: Batches) -> Batches:
    """Yields a job and fails, each time."""
    yield from with_summary(batches(FINDINGS, [finding(0, 0)]), FINDINGS, lambda: "done")
    raise ServerError("Error: the server has gone")


def test_rows_of_attempts_that_fail_are_nowhere(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "step"
    found = run_step(spark.range(0, PARTS, 1, PARTS), task, FINDINGS, str(folder), "finding")
    expected = {finding(partition, number) for partition in range(PARTS) for number in range(2)}
    rows = list(found.rows())
    assert len(rows) == len(expected)
    assert set(rows) == expected
    assert sorted(found.summaries()) == [f"part {partition}" for partition in range(PARTS)]
    assert found.frame().count() == len(expected)
    assert sorted(map(Path, os.listdir(folder))) == sorted([Path(COMPLETE), *(Path(Path(file).name) for file in found.files())])


def test_a_step_that_fails_leaves_no_file(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "step"
    with pytest.raises(FerrymanError, match=r"the server has gone \[finding, part 1, on"):
        run_step(spark.range(0, 1, 1, 1), failing, FINDINGS, str(folder), "finding")
    assert os.listdir(folder) == []


def test_what_an_attempt_leaves_that_nobody_waits_for_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    """It writes on after the step has ended, as long as it likes, and what it writes may be half a file."""
    folder = tmp_path / "step"
    found = run_step(spark.range(0, PARTS, 1, PARTS), task, FINDINGS, str(folder), "finding")
    before = list(found.rows())
    (folder / ".zombie.parquet").write_bytes(b"PAR1 and no more")
    assert list(found.rows()) == before
    assert len(list(found.summaries())) == PARTS
    assert found.frame().count() == len(before)


def test_a_second_step_leaves_its_rows_beside_those_of_the_first(spark: SparkSession, tmp_path: Path) -> None:
    folder = str(tmp_path / "step")
    run_step(spark.range(0, 1, 1, 1), task, FINDINGS, folder, "finding")
    with pytest.raises(ServerError, match="step: File exists"):
        run_step(spark.range(0, 1, 1, 1), task, FINDINGS, folder, "finding")
    assert len(list(run_step(spark.range(0, 1, 1, 1), task, FINDINGS, folder, "finding", more=True).rows())) == 4


def test_each_part_answers_once(spark: SparkSession) -> None:
    def answer(rows: Batches) -> str:
        context = TaskContext.get()
        if context.attemptNumber() == 0:
            raise ServerError("Error: the server has gone")
        return f"{context.partitionId()}: {sum(row.num_rows for row in rows)}"

    assert run_light_step(spark.range(0, 6, 1, PARTS), answer, "answering") == ["0: 2", "1: 2", "2: 2"]
