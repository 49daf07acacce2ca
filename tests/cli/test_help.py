"""The first things that anybody types."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

from ..support.command import ferryman, ferryman_process

COMMANDS = [
    "detect",
    "generate",
    "audit",
    "migrate",
    "verify",
    "jobs",
    "queues",
    "top",
    "backlog",
    "metrics",
    "dead",
    "cancel",
    "pause",
    "resume",
    "drain",
    "steer",
]


def test_the_version_is_that_of_the_package() -> None:
    outcome = ferryman_process("--version")
    assert (outcome.status, outcome.stdout) == (0, f"ferryman {version('ferryman')}\n")


def test_help_names_every_command_and_shows_examples() -> None:
    outcome = ferryman("--help")
    assert outcome.status == 0
    for command in COMMANDS:
        assert command in outcome.stdout
    assert "ferryman migrate" in outcome.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command: str) -> None:
    outcome = ferryman(command, "--help")
    assert outcome.status == 0
    assert f"  ferryman {command} " in outcome.stdout


def python(program: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=300)


def test_listing_jobs_imports_neither_spark_nor_celery() -> None:
    done = python(
        "import sys; from ferryman.cli import jobs, main;"
        "print([name for name in sys.modules if name in ('pyspark', 'celery', 'kombu')])"
    )
    assert done.stdout == b"[]\n"


def test_a_command_does_not_search_what_it_loads_for_cycles_again_and_again() -> None:
    done = python(
        "import atexit, gc; atexit.register(lambda: print(gc.get_threshold()[0]));"
        "from ferryman.cli.main import main; main(['audit', 'redis://localhost:1/0?nothing=1'])"
    )
    assert int(done.stdout) >= 50_000, done.stderr


def test_without_spark_the_error_names_what_to_install() -> None:
    done = python(
        "import sys; sys.modules['pyspark'] = None; sys.modules['pyarrow'] = None;"
        "from ferryman.cli.main import main;"
        "main(['audit', '--engine', 'spark', 'ferryman://localhost:1/0?family=kue'])"
    )
    assert done.returncode == 2
    assert b"pip install 'ferryman[spark]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
