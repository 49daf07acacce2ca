"""Limits for a child process: it obeys permissions even if root runs the tests, or can write only small files."""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Callable

PR_CAPBSET_DROP = 24
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2


def obeying_permissions() -> Callable[[], None] | None:
    """Return a ``preexec_fn`` after which root must obey the permissions of files, as every other user must."""
    if os.geteuid() != 0:
        return None
    libc = ctypes.CDLL(None, use_errno=True)

    def drop() -> None:
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0):
                raise OSError(ctypes.get_errno(), "prctl")

    return drop


def writing_at_most(size: int) -> Callable[[], None]:
    """Return a ``preexec_fn`` after which no file may grow beyond ``size`` bytes, as if the disk were full."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
