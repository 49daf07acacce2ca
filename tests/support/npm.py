"""Packages of Node.js, for tests beside the software that wrote the keys: installed once, into a folder outside the tree.

Where they can't be had, a test is skipped with the reason; under CI it fails instead.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import NoReturn

import pytest

SECONDS = 240

CACHE = Path(os.environ.get("FERRYMAN_TEST_CACHE") or Path.home() / ".cache" / "ferryman-tests")
"""What tests download, for all checkouts and all runs."""


def package(name: str, version: str) -> Path:
    """The folder of a package at this version, with what it needs beside it."""
    if not (shutil.which("node") and shutil.which("npm")):
        can_not(f"{name} {version} needs Node.js and npm on the PATH")
    folder = CACHE / "npm" / f"{name}-{version}"
    CACHE.joinpath("npm").mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _install(name, version, folder)
    return folder / "node_modules" / name


def _install(name: str, version: str, folder: Path) -> None:
    """Into a folder of its own first: what has been cut off leaves nothing that looks whole."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        whole = Path(scratch) / "whole"
        whole.mkdir()
        (whole / "package.json").write_text('{"private": true}')
        command = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", f"{name}@{version}"]
        try:
            done = subprocess.run(command, cwd=whole, capture_output=True, text=True, timeout=SECONDS, check=False)
        except subprocess.TimeoutExpired:
            can_not(f"{name} {version} did not come from the package registry in {SECONDS} s")
        if done.returncode:
            can_not(f"{name} {version} can't be installed: {done.stderr.strip().splitlines()[-1:]}")
        whole.rename(folder)


def can_not(reason: str) -> NoReturn:
    """Skips a test that must run beside software that is not to be had; under CI it fails."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(f"NOT TESTED against the original: {reason}")
