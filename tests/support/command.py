"""The ``ferryman`` command as tests run it: in this process for speed, or as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from inspect import signature
from pathlib import Path
from typing import Any

from attrs import frozen
from click.testing import CliRunner
from ferryman.cli.main import main

# click before 8.2 mixes stderr into stdout unless told otherwise; since then it can't.
RUNNER = CliRunner(mix_stderr=False) if "mix_stderr" in signature(CliRunner).parameters else CliRunner()

PROGRAM = [sys.executable, "-c", "from ferryman.cli.main import main; main()"]


@frozen
class Outcome:
    """What a run of the command left behind."""

    status: int
    stdout: str
    stderr: str

    def lines(self) -> list[dict[str, Any]]:
        """Stdout as JSON lines; fails when anything else stands there."""
        # Not splitlines: payloads hold line separators of other alphabets.
        return [json.loads(line) for line in self.stdout.split("\n") if line]

    @property
    def error(self) -> str:
        """The one line on stderr; fails when there is not exactly one."""
        (line,) = self.stderr.splitlines()
        return line


def ferryman(*arguments: str, app: Any = None) -> Outcome:
    """Runs the command in this process; with an app as ``celery -A app ferryman`` does."""
    result = RUNNER.invoke(main, arguments, catch_exceptions=False, obj=app)
    return Outcome(result.exit_code, result.stdout, result.stderr)


def ferryman_process(*arguments: str, cwd: Path | None = None, **environment: str) -> Outcome:
    """Runs the command as a process, as a user's shell does."""
    done = subprocess.run(
        [*PROGRAM, *arguments], capture_output=True, timeout=580, cwd=cwd, env={**os.environ, **environment}, check=False
    )
    return Outcome(done.returncode, done.stdout.decode("utf-8"), done.stderr.decode("utf-8"))
