"""Source distributions of what is installed here: kombu and Celery have tests in them that their wheels leave out."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

SECONDS = 90


def unpacked(name: str, cache: pytest.Cache, folder: Path) -> Path:
    """The sources of a package at its installed version, unpacked into ``folder``.

    They are downloaded once and kept in pytest's cache. Skips the test where they can't be had.
    """
    wanted = f"{name}-{version(name)}"
    downloads = cache.mkdir("sdists")
    archive = downloads / f"{wanted}.tar.gz"
    if not archive.exists():
        _download(f"{name}=={version(name)}", downloads)
    if not archive.exists():
        pytest.skip(f"the source distribution of {wanted} can't be downloaded here")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    return folder / wanted


def _download(requirement: str, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--retries", "0"]
    try:
        subprocess.run([*command, "--dest", str(folder), requirement], capture_output=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        pytest.skip(f"the source distribution of {requirement} did not come in {SECONDS} s")


def run_tests(source: Path, *arguments: str, environment: dict[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Runs tests of an unpacked source distribution with its own settings and none of ours."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", str(source)]
    return subprocess.run(
        [*command, *arguments], cwd=source, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )
