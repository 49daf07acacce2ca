"""A step: rows of the attempts that count, once each, and nothing of the others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ferryman.migrations.engine.runner import InProcess
from ferryman.migrations.engine.step import Output, run_step
from ferryman.migrations.engine.tables import FINDINGS
from ferryman.schema.errors import FerrymanError, ServerError
from ferryman.schema.rule import Finding, Severity
from ferryman.spark.runner import SparkRunner
from pyspark import TaskContext
from pyspark.sql import SparkSession

PARTS = 3


def finding(part: int, number: int) -> Finding:
    return Finding("KUE-1", Severity.ERROR, str(number), f"key {part}", None, "said twice")


def twice(part: int) -> Output[Finding]:
    """Finds two jobs a part. The first attempt fails, after it has yielded both."""

    def found() -> Iterator[Finding]:
        yield from (finding(part, number) for number in range(2))
        if TaskContext.get().attemptNumber() == 0:
            raise ServerError("Error: the server has gone")

    return Output(found(), lambda: f"part {part}")


def failing(part: int) -> Output[Finding]:
    """Yields a job and fails, each time."""

    def found() -> Iterator[Finding]:
        yield finding(part, 0)
        raise ServerError("Error: the server has gone")

    return Output(found())


def test_rows_of_attempts_that_fail_are_nowhere(spark: SparkSession, tmp_path: Path) -> None:
    found = run_step(SparkRunner(spark), twice, PARTS, FINDINGS, str(tmp_path / "step"), "finding")
    assert list(found.rows()) == [finding(part, number) for part in range(PARTS) for number in range(2)]
    assert found.summaries == tuple(f"part {part}" for part in range(PARTS))
    assert sorted(os.listdir(tmp_path / "step")) == sorted(os.path.basename(file) for file in found.files)


def test_a_step_that_fails_leaves_no_file(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FerrymanError, match=r"the server has gone \[finding, part 1, on"):
        run_step(SparkRunner(spark), failing, 1, FINDINGS, str(tmp_path / "step"), "finding")
    assert os.listdir(tmp_path / "step") == []


def test_a_part_without_rows_leaves_no_file(tmp_path: Path) -> None:
    found = run_step(InProcess(), lambda part: Output(summary=lambda: str(part)), 2, FINDINGS, str(tmp_path / "step"), "finding")
    assert (found.files, found.summaries) == ((), ("0", "1"))
    assert list(found.rows()) == os.listdir(tmp_path / "step") == []


def test_two_steps_are_never_in_one_folder(tmp_path: Path) -> None:
    (tmp_path / "step").mkdir()
    with pytest.raises(ServerError, match="step: File exists"):
        run_step(InProcess(), failing, 1, FINDINGS, str(tmp_path / "step"), "finding")


def test_each_part_answers_once_and_in_its_place(spark: SparkSession) -> None:
    def answer(part: int) -> str:
        context = TaskContext.get()
        if context.attemptNumber() == 0:
            raise ServerError("Error: the server has gone")
        return f"{context.partitionId()}: {part}"

    answers = SparkRunner(spark).run(answer, 6, "answering", light=True)
    assert [answer.split(": ")[1] for answer in answers] == list("012345")
    assert len({answer.split(": ")[0] for answer in answers}) < 6
    assert SparkRunner(spark).run(answer, 0, "answering") == []
