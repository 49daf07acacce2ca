"""The folder in which compiled kernels are kept: the user's cache folder, never the installed package.

``$FERRYMAN_CACHE_DIR``, else ``$XDG_CACHE_HOME/ferryman``, else ``~/.cache/ferryman``. Needs no numba: the command line asks
what is compiled before it loads the compiler. Called by kernel_cache.py, ../../migrations/engine/kernels.py and
../../migrations/local.py.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import tempfile
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

logger = logging.getLogger("ferryman")

CACHE_DIR = "FERRYMAN_CACHE_DIR"
"""The environment variable that names the cache folder."""
MODE = 0o755
"""The permissions of folders: other users, such as that of a container whose image root has made, may read them."""
PROBE_BYTES = 1 << 18
"""What must fit on the disk before kernels are compiled for the cache: the largest kernel."""


def cache_folder() -> Path:
    """Return the cache folder, which need not exist. Raises OSError if this user has no home folder."""
    if named := os.environ.get(CACHE_DIR):
        return Path(named).absolute()
    parent = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(parent):
        return Path(parent, "ferryman")
    home = os.path.expanduser("~")
    if not os.path.isabs(home):
        raise OSError("this user has no home folder")
    return Path(home, ".cache", "ferryman")


def kernels_folder() -> Path:
    """Return the folder of kernels for this version of ferryman, Python and numba. Raises OSError as ``cache_folder`` does."""
    versions = f"{_version('ferryman')}-{sys.implementation.cache_tag}-numba{_version('numba')}"
    return cache_folder() / "kernels" / versions


def _version(package: str) -> str:
    with contextlib.suppress(PackageNotFoundError):  # its files alone were copied
        return version(package)
    return "unknown"


def has_kernels() -> bool:
    """Report whether any kernel is cached for this version."""
    try:
        return any(kernels_folder().glob("*/*.nbi"))
    except OSError:
        return False


def is_writable() -> bool:
    """Report whether kernels can be cached. If not, log why."""
    try:
        folder = kernels_folder()
        folder.mkdir(MODE, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(PROBE_BYTES))
    except OSError as error:
        warn(str(error))
        return False
    return True


@cache
def warn(reason: str) -> None:
    """Log once why compiled code is not cached."""
    logger.warning(
        "Compiled code is not cached (%s): each command compiles it again, which takes seconds. Set %s to a folder that this "
        "user can write to.",
        reason,
        CACHE_DIR,
    )
