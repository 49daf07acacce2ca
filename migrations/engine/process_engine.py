"""ProcessEngine: carries keyspaces of any size with all cores of this machine. Called by local.py, for large ones."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from types import FrameType

from ...schema.connection.address import Address, Kind
from ..plan import Plan
from ..source import open_source
from ..throttle import UNTHROTTLED, Throttle
from . import Difference, Progress, Report, Verification, silent
from .file_carrier import FileCarrier
from .kernels import load_kernels
from .key_scan import parts_for_cores
from .processes import ProcessRunner
from .resume import work_folder
from .runner import Runner
from .worker import prepare_process

TERMINATED = 128 + signal.SIGTERM
"""The exit status of a process that was asked to end."""
LOADED_BY_ARROW = ("numpy.ma", "dateutil.relativedelta")
"""What pyarrow loads when it first makes an array: here, or each process would."""


class ProcessEngine(FileCarrier):
    """``work``, ``tasks``, ``throttle``: as for Carrier. ``runner``: instead of one with a process for each core."""

    name = "local"

    def __init__(
        self,
        work: str | None = None,
        tasks: int | None = None,
        throttle: Throttle = UNTHROTTLED,
        runner: ProcessRunner | None = None,
    ) -> None:
        super().__init__(work, tasks, throttle)
        self._runner = runner or ProcessRunner()

    def _cores(self) -> int:
        return self._runner.cores

    def _number(self, address: Address, times: float = 1) -> int:
        return self._tasks or max(super()._number(address, times), parts_for_cores(address, self._cores()))

    def verify(
        self, source: Address, target: Address, plan: Plan, report: Report[Difference], progress: Progress = silent
    ) -> Verification:
        """See Engine.verify."""
        _import_modules(target)
        return super().verify(source, target, plan, report, progress)

    @contextlib.contextmanager
    def _session(self, source: Address, progress: Progress, found: str | None = None) -> Iterator[tuple[Runner, str]]:
        if found is None:
            with open_source(source):
                pass  # a server that is down, or a file that is not there, is known before anything else is done
        _import_modules(source)
        load_kernels(self._runner, progress)
        prepare_process()
        with _ended_by_sigterm(), work_folder(self._work, found) as folder:
            yield self._runner, folder


def _import_modules(address: Address) -> None:
    """Loads what processes need: the modules of kernels for a family, and for a file, and what Arrow loads."""
    for name in LOADED_BY_ARROW:
        if find_spec(name.partition(".")[0]):
            import_module(name)
    if address.kind is Kind.RDB:
        import_module(".files", __package__)
    address.key_family.batch_prefilter(address.prefix, 0)


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """A polite request to end ends the block as Ctrl-C does, so that nothing is left behind."""

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise SystemExit(TERMINATED)

    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
