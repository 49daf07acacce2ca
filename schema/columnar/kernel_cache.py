"""KernelCache: the machine code of one kernel, kept in the user's cache folder (cache_folder.py). Called by jit.py.

numba keeps an index and the code of a function in one folder. Here that folder is named after the kernel's package, the CPU and a
digest of the sources, for example ``ferryman.migrations.columnar-zen4-5d0c41f7a2b98e36``. If a source of the package changes, its
kernels are compiled again, in a new folder. Folders that no process has used for 30 days are deleted when a new one is made.

A cache that can't be read counts as empty, and one that can't be written stays as it is: kernels work without it.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import os
import shutil
import stat
import sys
import time
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from llvmlite import binding
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from . import cache_folder

UNUSED = 30 * 24 * 3600.0
"""Seconds after which a folder that no process has used is deleted."""
DAY = 24 * 3600.0
"""Seconds after which a use is noted again, by the folder's modification time."""


class KernelCache(FunctionCache):  # type: ignore[misc]
    """The cached machine code of one function, for each of its signatures."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._folder = Path(self.cache_path)

    def has(self, signature: tuple[Any, ...], codegen: Any) -> bool:
        """Report whether the code for a signature is cached."""
        with contextlib.suppress(Exception):  # whatever a damaged file raises
            return _is_trusted(self._folder) and self._index_key(signature, codegen) in self._cache_file._load_index()
        return False

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the code for a signature, or None if it is not there or can't be read."""
        if not _is_trusted(self._folder):
            return None
        _note_use(self._folder)
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # noqa: BLE001 - whatever a damaged file raises
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the code for a signature. If that fails, log why."""
        try:
            if not self._folder.exists():
                self._folder.parent.mkdir(cache_folder.MODE, parents=True, exist_ok=True)
                self._folder.mkdir(cache_folder.MODE, exist_ok=True)
                delete_unused(self._folder.parents[1])
            if not _is_trusted(self._folder):
                raise PermissionError(f"other users may write to {self._folder}")
            super().save_overload(sig, data)
        except OSError as error:
            cache_folder.warn(str(error))


class _Locator(_CacheLocator):  # type: ignore[misc]
    """Where numba keeps one function."""

    def __init__(self, function: Callable[..., Any], path: str) -> None:
        self._py_file = path
        self._line = function.__code__.co_firstlineno
        self._digest = _digest(function.__module__)
        package = function.__module__.rpartition(".")[0] or function.__module__
        self._folder = cache_folder.kernels_folder() / f"{package}-{binding.get_host_cpu_name()}-{self._digest[:16]}"

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator:
        """Raises OSError if this user has no cache folder."""
        return cls(py_func, py_file)

    def ensure_cache_path(self) -> None:
        """KernelCache makes the folder."""

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return self._digest

    def get_disambiguator(self) -> str:
        return str(self._line)


class _Files(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


KernelCache._impl_class = _Files


@cache
def _digest(module: str) -> str:
    """Return a digest of all that decides about the machine code of a module's kernels: the CPU and the sources."""
    digest = hashlib.sha256(f"{binding.get_host_cpu_name()} {binding.get_host_cpu_features().flatten()}".encode())
    package = module.rpartition(".")[0]
    if not package:
        digest.update(inspect.getsource(sys.modules[module]).encode())
    for each in sorted({package, __package__ or ""} - {""}):
        digest.update(_sources(each))
    return digest.hexdigest()


@cache
def _sources(package: str) -> bytes:
    """Return a digest of the sources of a package, which may be in an archive."""
    sources = {each.name: each.read_bytes() for each in files(package).iterdir() if each.name.endswith(".py")}
    return hashlib.sha256(b"".join(sources[name] for name in sorted(sources))).digest()


def _is_trusted(folder: Path) -> bool:
    """Report whether the folder is there, and no other user but root may write to it: what it holds is executed."""
    try:
        found = folder.stat()
    except OSError:
        return False
    return found.st_uid in (0, os.geteuid()) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _note_use(folder: Path) -> None:
    """Note that the folder is in use, once a day."""
    if time.time() - folder.stat().st_mtime > DAY:
        with contextlib.suppress(OSError):  # another user's, or on a read-only disk
            os.utime(folder)


def delete_unused(kernels: Path) -> None:
    """Delete the folders of all versions that no process has used for UNUSED seconds."""
    for folder in kernels.glob("*/*"):
        with contextlib.suppress(OSError):  # another process has deleted it
            if time.time() - folder.stat().st_mtime > UNUSED:
                shutil.rmtree(folder)
                folder.parent.rmdir()  # if it is empty now
