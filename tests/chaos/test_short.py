"""The short chaos run, as CI has it: workers killed in every way, the server killed and frozen, nothing lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(600)
def test_kills_restarts_and_freezes_lose_nothing_and_repeat_nothing_without_a_reason(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.chaos", "--profile", "short", "--seed", "1", "--keep", str(tmp_path)]
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
