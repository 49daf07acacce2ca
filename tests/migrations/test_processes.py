"""Processes of this machine: what becomes of parts, of processes that die, and of those who wait for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ferryman.migrations.engine.processes import ATTEMPTS, ProcessRunner
from ferryman.schema.errors import FerrymanError, KeyspaceNotFound, ServerError

from ..support.topologies import wait_until

RUNNER = ProcessRunner(cores=2)


def begun(folder: Path, part: int) -> int:
    """How often a part has begun, this time included."""
    (folder / f"{part}-{os.urandom(4).hex()}").touch()
    return len(list(folder.glob(f"{part}-*")))


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return not Path(f"/proc/{process}/stat").exists() or Path(f"/proc/{process}/stat").read_text().split()[2] != "Z"


def test_each_part_answers_in_its_place_and_another_process_does_it() -> None:
    answers = RUNNER.run(lambda part: f"{part} {os.getpid()}", 7, "answering")
    assert [answer.split()[0] for answer in answers] == list("0123456")
    processes = {int(answer.split()[1]) for answer in answers}
    assert 1 <= len(processes) <= 2
    assert os.getpid() not in processes
    assert not any(map(is_there, processes))
    assert RUNNER.run(str, 0, "answering") == []


def test_progress_goes_from_nothing_to_all_parts() -> None:
    seen: list[tuple[str, int, int | None]] = []
    RUNNER.run(str, 5, "answering", lambda *report: seen.append(report))
    assert seen[0] == ("answering", 0, 5)
    assert seen[-1] == ("answering", 5, 5)
    assert seen == sorted(seen)


def test_a_part_whose_process_is_killed_is_done_by_another(tmp_path: Path) -> None:
    def die_once(part: int) -> str:
        if part == 1 and begun(tmp_path, part) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return str(part)

    assert RUNNER.run(die_once, 4, "dying") == ["0", "1", "2", "3"]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_part_whose_process_is_killed_each_time_is_one_error_that_says_what_to_do(tmp_path: Path) -> None:
    def die(part: int) -> str:
        begun(tmp_path, part)
        os.kill(os.getpid(), signal.SIGKILL)
        return ""

    with pytest.raises(
        ServerError, match=r"was killed, most likely because memory ran out; let --partitions .* \[dying, part 1\]"
    ):
        RUNNER.run(die, 1, "dying")
    assert len(list(tmp_path.iterdir())) == ATTEMPTS


@pytest.mark.parametrize(("error", "attempts"), [(ServerError("gone"), ATTEMPTS), (KeyspaceNotFound("no keys"), 1)])
def test_an_error_of_a_part_is_that_error_with_its_place_after_as_many_attempts_as_it_is_worth(
    tmp_path: Path, error: FerrymanError, attempts: int
) -> None:
    def fail(part: int) -> str:
        begun(tmp_path, part)
        raise error

    with pytest.raises(type(error), match=rf"{error} \[failing, part 1, on "):
        RUNNER.run(fail, 1, "failing")
    assert len(list(tmp_path.iterdir())) == attempts


def test_a_mistake_in_a_task_comes_with_its_traceback() -> None:
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        RUNNER.run(lambda part: str(1 // part), 1, "dividing")


def test_memory_that_a_process_may_not_have_is_one_error() -> None:
    small = ProcessRunner(cores=1, memory=1 << 30)
    with pytest.raises(FerrymanError, match="a process may have 1024 MB, and needs more; let --partitions"):
        small.run(lambda _: str(len(bytearray(2 << 30))), 1, "filling")


def test_an_interrupted_step_ends_its_processes() -> None:
    reading, writing = os.pipe()

    def wait(_: int) -> str:
        os.write(writing, b"%d\n" % os.getpid())
        signal.pause()
        return ""

    found: list[int] = []

    def interrupt(_phase: str, _done: int, _total: int | None) -> None:
        if found:
            raise KeyboardInterrupt
        found.append(0)  # that of the beginning

    with pytest.raises(KeyboardInterrupt):
        RUNNER.run(wait, 2, "waiting", interrupt)
    os.close(writing)
    with open(reading) as pipe:
        assert not any(is_there(int(line)) for line in pipe)


PROGRAM = """
import os, signal, sys
from ferryman.migrations.engine.process_engine import _ended_by_sigterm
from ferryman.migrations.engine.processes import ProcessRunner
from ferryman.migrations.engine.resume import work_folder

def wait(part):
    os.write(1, b"%d\\n" % os.getpid())  # at once: another one may write at the same time
    signal.pause()

with _ended_by_sigterm(), work_folder(sys.argv[1]):
    ProcessRunner(cores=2).run(wait, 2, "waiting")
"""


ENDS = pytest.mark.parametrize(
    ("signal_number", "is_clean"), [(signal.SIGKILL, False), (signal.SIGTERM, True), (signal.SIGINT, True)]
)
"""By these signals, and whether the work folder is deleted then."""


def assert_all_end(program: str, count: int, folder: Path, signal_number: int, is_clean: bool) -> None:
    """A program whose processes, so many, wait for ever is ended by a signal: none of them outlives it."""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as waiting:
        assert waiting.stdout is not None
        processes = [int(waiting.stdout.readline()) for _ in range(count)]
        waiting.send_signal(signal_number)
    wait_until(lambda: not any(map(is_there, processes)))
    assert (list(folder.iterdir()) == []) == is_clean


@ENDS
def test_no_process_outlives_the_one_that_waits_and_a_request_to_end_leaves_no_file(
    tmp_path: Path, signal_number: int, is_clean: bool
) -> None:
    assert_all_end(PROGRAM, 2, tmp_path, signal_number, is_clean)
