"""ProcessRunner: does the parts of a step in processes of this machine.

    this process -> number of a part -> a process of the pool, forked for this step -> its summary, or its error
                    again, up to ATTEMPTS times, where a process dies or a server fails

Processes are forked, so they have what this one has loaded, task and kernels included, and give all memory back when a step ends.
Ctrl-C reaches only this process, which ends the others. They end by themselves when this one is killed: each watches a pipe that
only this one keeps open. Called by carrier.py's ProcessEngine.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from attrs import define, field, frozen

from ...schema import errors
from ...schema.errors import FerrymanError, ServerError
from ..gc_paused import gc_paused
from . import Progress, silent
from .failures import located
from .runner import Task, part_name
from .side_by_side import SideBySide
from .worker import leave_pandas_out, prepare_process

S = TypeVar("S")
T = TypeVar("T")

ATTEMPTS = 4
"""How often a part is begun, at most: as often as Spark's are."""
POLL_SECONDS = 0.25
"""How often progress is shown while nothing happens."""
LEAST_MEMORY = 1 << 30
"""Bytes that a process may have on any machine."""
_KEPT_OPEN: set[int] = set()
"""The pipes, one of each pool, by which the processes of that pool are told that the one that made them has ended."""


def available_cores() -> int:
    """How many processes of this machine may work side by side."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory() -> int:
    """Bytes of memory that this machine, or the container, has."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            found = min(found, int(file.read()))
    return found


@frozen
class ProcessRunner:
    """See Runner. ``cores``: how many processes. ``memory``: bytes that each may have; the default is its share of all."""

    cores: int = field(factory=available_cores)
    memory: int = field()
    _side_by_side: SideBySide = field(factory=SideBySide, init=False, repr=False, eq=False)

    @memory.default
    def _share(self) -> int:
        return max(LEAST_MEMORY, available_memory() // self.cores)

    def run(self, task: Task, parts: int, phase: str, progress: Progress = silent, *, light: bool = False) -> list[str]:
        """See Runner.run."""
        if not parts:
            return []
        answers: dict[int, str] = {}
        progress(phase, 0, parts)
        with _pool(task, phase, self.memory) as pool:
            left, begun = deque(range(parts)), [0] * parts
            while len(answers) < parts:
                while left and (worker := pool.idle(self._side_by_side.share(self.cores))) is not None:
                    begun[left[0]] += 1
                    worker.begin(left.popleft())
                for worker in pool.finished(self._side_by_side.waiting):
                    part = worker.part
                    outcome = worker.outcome()
                    if isinstance(outcome, str):
                        answers[part] = outcome
                    elif begun[part] < ATTEMPTS and is_worth_another_attempt(outcome):
                        left.append(part)
                    else:
                        raise outcome
                progress(phase, len(answers), parts)
        return [answers[part] for part in range(parts)]

    def together(self, first: Callable[[Progress], S], second: Callable[[Progress], T], progress: Progress) -> tuple[S, T]:
        """See Runner.together: either keeps all cores busy by itself, but for servers that wait, and are waited for."""
        if self.cores < 2:
            return first(progress), second(progress)
        return self._side_by_side.run(first, second, progress)


class ProcessDied(ServerError):
    """A process ended before its part did."""


def is_worth_another_attempt(error: Exception) -> bool:
    """Whether a part that failed so may do better the next time."""
    return type(error) in (ServerError, ProcessDied)


@define(eq=False)
class _Worker:
    """A process of the pool, as the one that made it sees it."""

    process: Any
    pipe: Connection
    phase: str
    part: int = -1
    """What it does; -1 if nothing."""

    def begin(self, part: int) -> None:
        self.part = part
        with contextlib.suppress(OSError):  # it has died: the pipe will say so
            self.pipe.send_bytes(b"%d" % part)

    def outcome(self) -> str | Exception:
        """What the part has come to."""
        part, self.part = self.part, -1
        try:
            answer = json.loads(self.pipe.recv_bytes())
        except (EOFError, OSError):
            self.process.join()
            return ProcessDied(f"{_end(self.process.exitcode)} [{part_name(self.phase, part)}]")
        if "answer" in answer:
            return str(answer["answer"])
        return _raised(answer)


def _end(status: int) -> str:
    """What became of a process, by its exit status."""
    if status == -signal.SIGKILL:
        return "a process was killed, most likely because memory ran out; let --partitions name a greater number"
    return (
        f"a process ended by itself, with signal {-status}" if status < 0 else f"a process ended by itself, with status {status}"
    )


def _raised(answer: dict[str, str]) -> Exception:
    """The error that a task has raised."""
    error_type = getattr(errors, answer["type"], None)
    if isinstance(error_type, type) and issubclass(error_type, FerrymanError):
        return error_type(answer["error"])
    return RuntimeError(answer["error"])


class _Pool:
    """The processes that do the parts of one step."""

    def __init__(self, make: Callable[[], _Worker]) -> None:
        self._make = make
        self._workers: list[_Worker] = []

    def idle(self, most: int) -> _Worker | None:
        """One that has nothing to do, if fewer than ``most`` have. One that has died is replaced."""
        if sum(worker.part >= 0 for worker in self._workers) >= most:
            return None
        for index, worker in enumerate(self._workers):
            if worker.part < 0:
                if not worker.process.is_alive():
                    worker.pipe.close()
                    worker = self._workers[index] = self._make()
                return worker
        self._workers.append(self._make())
        return self._workers[-1]

    def finished(self, waiting: Callable[[], contextlib.AbstractContextManager[None]]) -> list[_Worker]:
        """Those whose part has come to something; nobody, if that takes longer than it should for progress to be shown.

        ``waiting``: what the time is for which nothing is done but to wait for them.
        """
        busy = {worker.pipe: worker for worker in self._workers if worker.part >= 0}
        with waiting():
            ready = wait(list(busy), POLL_SECONDS)
        return [busy[pipe] for pipe in ready if isinstance(pipe, Connection)]

    def end(self) -> None:
        """Ends all, whatever they do."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()
            worker.pipe.close()


@contextlib.contextmanager
def _pool(task: Task, phase: str, memory: int) -> Iterator[_Pool]:
    context = get_context("fork")
    watched, kept = os.pipe()
    _KEPT_OPEN.add(kept)

    def make() -> _Worker:
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(task, phase, theirs, ours, watched, memory), daemon=True)
        with warnings.catch_warnings():
            # Python 3.12 warns of other threads, whose locks stay locked in the new process: here they only draw progress.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        theirs.close()
        return _Worker(process, ours, phase)

    pool: _Pool | None = None
    try:
        pool = _Pool(make)
        yield pool
    finally:
        if pool is not None:
            pool.end()
        _KEPT_OPEN.remove(kept)
        os.close(watched)
        os.close(kept)


# In a process of the pool


def _work(task: Task, phase: str, pipe: Connection, other: Connection, watched: int, memory: int) -> None:
    """Does parts until nobody sends any."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    other.close()
    for kept in _KEPT_OPEN:  # of all pools that were there: only who made them keeps these open
        os.close(kept)
    threading.Thread(target=_end_with, args=(watched,), daemon=True).start()
    prepare_process()
    leave_pandas_out()
    with contextlib.suppress(ValueError, OSError):  # a lower limit is set already
        resource.setrlimit(resource.RLIMIT_DATA, (memory, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    while True:
        try:
            part = int(pipe.recv_bytes())
        except EOFError:
            return
        pipe.send_bytes(json.dumps(_do(task, phase, part, memory)).encode())


def _end_with(watched: int) -> None:
    """Ends this process when the one that made it has ended."""
    os.read(watched, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def _do(task: Task, phase: str, part: int, memory: int) -> dict[str, str]:
    try:
        with gc_paused(), located(part_name(phase, part)):
            return {"answer": task(part)}
    except MemoryError:
        error = f"a process may have {memory >> 20} MB, and needs more; let --partitions name a greater number"
        return {"type": FerrymanError.__name__, "error": f"{error} [{part_name(phase, part)}]"}
    except FerrymanError as error:
        return {"type": type(error).__name__, "error": str(error)}
    except Exception:  # noqa: BLE001 - the process that waits for the part raises it
        import traceback

        return {"type": "", "error": traceback.format_exc()}
