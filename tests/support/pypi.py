"""Packages of Python, for tests beside the software that wrote the keys: installed once, into a folder outside the tree.

Each stands in a folder of its own with what it needs, so that nothing of it meets what is installed here: only processes of
their own put it on their path. Where it can't be had, a test is skipped with the reason; under CI it fails instead.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
import tempfile
from pathlib import Path

from .npm import CACHE, can_not

SECONDS = 240


def folder_of(name: str, version: str) -> Path:
    """The folder in which a package at this version is installed."""
    folder = CACHE / "pypi" / f"{name}-{version}"
    CACHE.joinpath("pypi").mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _install(name, version, folder)
    return folder


def _install(name: str, version: str, folder: Path) -> None:
    """Into a folder of its own first: what has been cut off leaves nothing that looks whole."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        whole = Path(scratch) / "whole"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target", str(whole)]
        try:
            done = subprocess.run([*command, f"{name}=={version}"], capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            can_not(f"{name} {version} did not come from the package registry in {SECONDS} s")
        if done.returncode:
            can_not(f"{name} {version} can't be installed: {done.stderr.strip().splitlines()[-1:]}")
        whole.rename(folder)
