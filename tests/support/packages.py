"""Packages for executors that have none: what a user would send along with an application, and a Python that lacks it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
NOT_PACKED = shutil.ignore_patterns(".git", "tests", "build", "*.egg-info", "__pycache__")
USUAL = ("pyarrow", "pandas", "numba")
"""What images with Spark for Python have anyhow, and what is too large to be sent with every application."""


def source_tree(folder: Path) -> Path:
    """A copy of the project that a build may write to."""
    return Path(shutil.copytree(ROOT, folder, ignore=NOT_PACKED))


def install(folder: Path) -> Path:
    """Installs the project alone, without what it needs, into ``folder/installed``."""
    tree, installed = source_tree(folder / "tree"), folder / "installed"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(installed)]
    subprocess.run([*pip, str(tree)], check=True, capture_output=True, timeout=200)
    return installed


def archive(folder: Path) -> Path:
    """``packages.tar.gz``: the project and what it needs beside the usual, as ``pip install --target`` leaves it."""
    installed = install(folder)
    for entry in _entries(_needed(["ferryman"]) - _needed(USUAL) - {"ferryman"}):
        if not (installed / entry.name).exists():
            (shutil.copytree if entry.is_dir() else shutil.copy)(entry, installed / entry.name)
    packed = folder / "packages.tar.gz"
    with tarfile.open(packed, "w:gz", compresslevel=1) as file:
        file.add(installed, ".")
    return packed


def bare_python(folder: Path) -> Path:
    """The interpreter of a new environment that has the usual packages, and not the project."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for entry in _entries(_needed(USUAL)):
        (site / entry.name).symlink_to(entry)
    return folder / "bin" / "python"


def _needed(names: Iterable[str]) -> set[str]:
    """Distributions, and what they need without extras."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        for need in map(Requirement, distribution(name).requires or ()):
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                waiting += [need.name, *need.extras]  # redis[hiredis] needs hiredis
    return found


def _entries(names: Iterable[str]) -> Iterator[Path]:
    """The files and folders of distributions, as they stand in site-packages."""
    for name in names:
        here = distribution(name)
        tops = {file.parts[0] for file in here.files or () if file.parts[0] not in ("..", "__pycache__")}
        yield from (Path(str(here.locate_file(top))) for top in sorted(tops))
