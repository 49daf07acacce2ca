"""The documentation site, built once for all tests of a run, however many processes share them."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from .pages import ROOT

SECONDS = 580


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The folder of the built site. Building it gives no warning."""
    base = tmp_path_factory.getbasetemp()
    shared = base if worker_id == "master" else base.parent
    folder = shared / "site"
    with (shared / "site.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _build(shared / "site-in-the-making", shared / "site-cache").rename(folder)
    return folder


def _build(folder: Path, cache: Path) -> Path:
    """Into another folder first: a build that was cut off, or that warned, leaves nothing that looks whole."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", "-d", str(cache), ".", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stderr
    return folder
