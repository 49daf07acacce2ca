"""Two series of steps at once: they share the cores, and an error, an interruption or the end of one ends what it should."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ferryman.migrations.engine import Progress, silent
from ferryman.migrations.engine.processes import ProcessRunner
from ferryman.schema.errors import KeyspaceNotFound

from ..support.topologies import wait_until
from .test_processes import ENDS, assert_all_end, is_there

Task = Callable[[int], str]
SECONDS = 30.0
"""More than any of these tests takes."""


def steps(runner: ProcessRunner, *tasks: Task, parts: int = 1) -> Callable[[Progress], list[str]]:
    """A series of steps, whose answers it returns."""

    def run(progress: Progress) -> list[str]:
        return [answer for task in tasks for answer in runner.run(task, parts, task.__name__, progress)]

    return run


def meeting(mine: Path, other: Path) -> Task:
    """A task that ends when another one has begun."""

    def meet(_: int) -> str:
        mine.touch()
        wait_until(other.exists)
        return mine.name

    return meet


def waiting(pipe: int) -> Task:
    """A task that tells its process, and never ends."""

    def wait(_: int) -> str:
        os.write(pipe, b"%d\n" % os.getpid())
        time.sleep(SECONDS)
        return ""

    return wait


def test_both_run_at_once_and_return_what_they_return(tmp_path: Path) -> None:
    runner, one, other = ProcessRunner(cores=2), tmp_path / "one", tmp_path / "other"
    first, second = steps(runner, meeting(one, other)), steps(runner, meeting(other, one), str)
    assert runner.together(first, second, silent) == (["one"], ["other", "0"])


def test_with_one_core_one_comes_after_the_other(tmp_path: Path) -> None:
    runner = ProcessRunner(cores=1)

    def leave(_: int) -> str:
        (tmp_path / "done").touch()
        return ""

    def look(_: int) -> str:
        return str((tmp_path / "done").exists())

    assert runner.together(steps(runner, leave), steps(runner, look), silent) == ([""], ["True"])


@pytest.mark.parametrize("cores", [2, 3])
def test_no_more_parts_run_than_there_are_cores_and_all_of_these_are_for_the_one_that_is_left(tmp_path: Path, cores: int) -> None:
    runner = ProcessRunner(cores=cores)

    running, reached = tmp_path / "running", tmp_path / "reached"
    running.mkdir()
    reached.mkdir()

    def count(name: str, *, alone: bool) -> Task:
        """Each part runs until as many parts run as there are cores, once: all of them of this series if ``alone``."""

        def count_parts(part: int) -> str:
            (running / f"{name}-{part}").touch()
            deadline = time.monotonic() + SECONDS
            while True:
                names = os.listdir(running)
                own = sum(each.startswith(name) for each in names)
                if (own if alone else len(names)) >= cores:
                    (reached / name).touch()
                if (reached / name).exists() or time.monotonic() > deadline:
                    break
                time.sleep(0.005)
            (running / f"{name}-{part}").unlink()
            return f"{len(names)} {own}"

        return count_parts

    first = steps(runner, count("first", alone=False), parts=cores)
    second = steps(runner, count("second", alone=True), parts=8 * cores)
    both = runner.together(first, second, silent)
    assert max(int(answer.split()[0]) for answers in both for answer in answers) == cores
    assert max(int(answer.split()[1]) for answer in both[1]) == cores


@pytest.mark.parametrize("fails_first", [True, False])
def test_an_error_of_one_ends_the_processes_of_the_other(fails_first: bool) -> None:
    runner = ProcessRunner(cores=2)
    reading, writing = os.pipe()

    def fail(_: int) -> str:
        found.append(int(os.read(reading, 20)))
        raise KeyspaceNotFound(f"no keys {found}")

    found: list[int] = []
    series = [steps(runner, fail), steps(runner, waiting(writing))]
    first, second = series if fails_first else reversed(series)
    began = time.monotonic()
    with pytest.raises(KeyspaceNotFound, match="no keys") as raised:
        runner.together(first, second, silent)
    assert time.monotonic() - began < SECONDS / 2
    process = int(str(raised.value).partition("[")[2].partition("]")[0])
    assert not is_there(process)
    os.close(reading)
    os.close(writing)
    assert runner.together(steps(runner, str), steps(runner, str), silent) == (["0"], ["0"])


def test_the_progress_of_the_second_is_shown_once_the_first_has_ended() -> None:
    runner = ProcessRunner(cores=2)
    seen: list[str] = []

    def slow(_: int) -> str:
        time.sleep(1)
        return ""

    runner.together(steps(runner, str), steps(runner, slow), lambda phase, *_: seen.append(phase))
    assert seen == sorted(seen, key=["str", "slow"].index)
    assert set(seen) == {"str", "slow"}


PROGRAM = """
import os, signal, sys
from ferryman.migrations.engine import silent
from ferryman.migrations.engine.process_engine import _ended_by_sigterm
from ferryman.migrations.engine.processes import ProcessRunner
from ferryman.migrations.engine.resume import work_folder

runner = ProcessRunner(cores=4)

def wait(part):
    os.write(1, b"%d\\n" % os.getpid())  # at once: another one may write at the same time
    signal.pause()

def series(progress):
    runner.run(wait, 2, "waiting", progress)

with _ended_by_sigterm(), work_folder(sys.argv[1]):
    runner.together(series, series, silent)
"""


@ENDS
def test_no_process_of_either_outlives_the_one_that_waits(tmp_path: Path, signal_number: int, is_clean: bool) -> None:
    assert_all_end(PROGRAM, 4, tmp_path, signal_number, is_clean)
