"""Compiled kernels are kept in the user's cache folder: found again, compiled again when a source changes, and not needed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from ferryman.schema.columnar import cache_folder
from ferryman.schema.columnar.kernel_cache import UNUSED, delete_unused

from ...support.unprivileged import obeying_permissions, writing_at_most

KERNEL = """
from numba import int64
from ferryman.schema.columnar.jit import kernel

@kernel(int64)
def times(number):
    return 2 * number
"""
CALL = """
import multiples
print(multiples.times(21), "cached" if multiples.times._compiled.stats.cache_hits else "compiled")
"""


def call(folder: Path, limit: Callable[[], None] | None = None, **environment: str) -> tuple[str, list[str]]:
    """Call the kernel of ``folder/multiples.py`` in a new process. Return what it prints, and the lines of its stderr."""
    done = subprocess.run(
        [sys.executable, "-c", CALL],
        cwd=folder,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "FERRYMAN_CACHE_DIR": str(folder / "cache"), **environment},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout.strip(), done.stderr.splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "multiples.py").write_text(KERNEL)
    return tmp_path


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"FERRYMAN_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/a"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/c"}, "/b/ferryman"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/c"}, "/c/.cache/ferryman"),
        ({"FERRYMAN_CACHE_DIR": "", "XDG_CACHE_HOME": "", "HOME": "/c"}, "/c/.cache/ferryman"),
    ],
)
def test_the_environment_decides_where_the_cache_is(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str
) -> None:
    for name in ("FERRYMAN_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert str(cache_folder.cache_folder()) == expected


def test_a_kernel_is_compiled_once_and_leaves_files_only_in_the_cache(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRYMAN_CACHE_DIR", str(folder / "cache"))
    assert not cache_folder.has_kernels()
    assert [call(folder) for _ in range(2)] == [("42 compiled", []), ("42 cached", [])]
    assert cache_folder.has_kernels()
    assert sorted(each.name for each in folder.iterdir()) == ["cache", "multiples.py"]


def test_a_changed_source_is_compiled_again(folder: Path) -> None:
    assert call(folder) == ("42 compiled", [])
    (folder / "multiples.py").write_text(KERNEL.replace("2 *", "3 *"))
    assert call(folder) == ("63 compiled", [])


def test_damaged_files_are_replaced(folder: Path) -> None:
    call(folder)
    for each in (folder / "cache").rglob("*.nb?"):
        each.write_bytes(each.read_bytes()[:30])
    assert [call(folder)[0] for _ in range(2)] == ["42 compiled", "42 cached"]


def test_a_folder_that_others_may_write_to_is_not_used(folder: Path) -> None:
    call(folder)
    (kept,) = (folder / "cache").glob("kernels/*/*")
    kept.chmod(0o777)
    printed, (line,) = call(folder)
    assert (printed, str(kept) in line) == ("42 compiled", True)


def test_a_read_only_cache_is_read_and_says_so_once_when_it_lacks_something(folder: Path) -> None:
    call(folder)
    folders = [each for each in (folder / "cache", *(folder / "cache").rglob("*")) if each.is_dir()]
    for each in folders:
        each.chmod(0o555)
    assert call(folder, obeying_permissions()) == ("42 cached", [])
    (folder / "multiples.py").write_text(KERNEL.replace("2 *", "3 *"))
    printed, (line,) = call(folder, obeying_permissions())
    assert printed == "63 compiled"
    assert "Permission denied" in line
    assert "FERRYMAN_CACHE_DIR" in line


def test_a_full_disk_and_a_user_without_a_cache_folder_are_no_obstacle(folder: Path) -> None:
    printed, (line,) = call(folder, writing_at_most(64))
    assert (printed, "File too large" in line) == ("42 compiled", True)
    assert call(folder)[0] == "42 compiled"
    printed, _ = call(folder, FERRYMAN_CACHE_DIR="", XDG_CACHE_HOME="", HOME="relative")
    assert printed == "42 compiled"


def test_processes_that_compile_at_once_leave_a_sound_cache(folder: Path) -> None:
    command = [sys.executable, "-c", CALL]
    environment = {**os.environ, "FERRYMAN_CACHE_DIR": str(folder / "cache")}
    running = [subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert {each.communicate(timeout=120)[0].split()[0] for each in running} == {"42"}
    assert call(folder) == ("42 cached", [])


def test_folders_of_any_version_are_deleted_when_unused(tmp_path: Path) -> None:
    now = time.time()
    for name, unused_s in (("0.0.9/old", UNUSED + 60), ("0.1.0/old", UNUSED + 60), ("0.1.0/new", UNUSED - 60)):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "kernel.nbi").touch()
        os.utime(tmp_path / name, (now - unused_s, now - unused_s))
    delete_unused(tmp_path)
    assert sorted(str(each.relative_to(tmp_path)) for each in tmp_path.rglob("*")) == [
        "0.1.0",
        "0.1.0/new",
        "0.1.0/new/kernel.nbi",
    ]
