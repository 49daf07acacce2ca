"""Cases that the kinds of server take in turn: none is left out, each kind is asked, and at night all of them are."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import SERVERS

ROOT = Path(__file__).parents[1]
FILE = "tests/compat/kue/test_writer.py"
KINDS = [kind.name for kind in SERVERS]


def collected(*chosen: str, **environment: str) -> list[str]:
    """The names of the tests that would run, as ``pytest`` prints them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *(chosen or (FILE,))]
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("FERRYMAN_")}
    found = subprocess.run(command, cwd=ROOT, env=surroundings | environment, capture_output=True, text=True, check=True)
    return [line for line in found.stdout.splitlines() if "::" in line]


def kind_of(name: str) -> str | None:
    return next((kind for kind in KINDS if f"[{kind}" in name), None)


def case_of(name: str) -> str:
    return name.replace(f"[{kind_of(name)}", "[")


@pytest.mark.skipif(len(KINDS) < 2, reason="there is one kind of server here")
def test_each_case_runs_on_one_kind_of_server_and_at_night_on_all_of_them():
    by_day, at_night = collected(), collected(FERRYMAN_NIGHTLY="1")
    asking = [name for name in at_night if kind_of(name)]
    assert {case_of(name) for name in by_day} == {case_of(name) for name in at_night}
    assert len(by_day) == len({case_of(name) for name in by_day}) < len(at_night)
    assert sorted(asking) == sorted(case_of(name).replace("[", f"[{kind}") for name in by_day if kind_of(name) for kind in KINDS)
    assert {kind_of(name) for name in by_day} == {*KINDS, None}


@pytest.mark.skipif(len(KINDS) < 2, reason="there is one kind of server here")
def test_a_case_that_is_asked_for_by_its_name_runs_on_the_kind_that_the_name_tells():
    names = [name for name in collected(FERRYMAN_NIGHTLY="1") if kind_of(name)][: len(KINDS)]
    assert [found for name in names for found in collected(name)] == names


def test_one_kind_of_server_can_be_asked_alone():
    assert {kind_of(name) for name in collected(FERRYMAN_TESTS_ON=KINDS[0])} == {KINDS[0], None}


SCHEDULED = """
from tests.conftest import pytest_xdist_make_scheduler
"""


def test_two_processes_run_sparks_tests_and_the_others_none_of_them(tmp_path):
    files = [f"tests/{folder}/test_{name}.py" for name in "abcd" for folder in ("other", "spark")]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("def test_it(): pass\n")
    (tmp_path / "conftest.py").write_text(SCHEDULED)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib --dist loadfile --no-loadscope-reorder\n")
    command = [sys.executable, "-m", "pytest", "-n", "3", "-v", *files]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    ran = re.findall(r"^\[(gw\d+)\] .* PASSED tests/(\w+)/", done.stdout, re.MULTILINE)
    assert len(ran) == len(files)
    running_spark = {process for process, folder in ran if folder == "spark"}
    assert len(running_spark) == 2, "which they are depends on who starts first"
    assert len({process for process, _ in ran} - running_spark) == 1
