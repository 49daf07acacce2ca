"""The first page is walked as a stranger walks it: an app, a server, a killed worker, no task lost.

The slow lane begins with an empty virtual environment, and looks at the clock: that is what the page promises.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ..support.packages import source_tree
from ..support.servers import free_port
from .pages import ROOT, blocks, commands

pytestmark = pytest.mark.servers
PAGE = ROOT / "docs" / "start.md"
CELERY = 'celery() { exec python -m celery "$@"; }'
"""The program may not be on the path of who runs the tests."""
OF_INSTALLATION = ("python3 -m venv", "pip install")
PROMISED_S = 300


def test_each_order_is_charged_though_the_worker_was_killed(tmp_path: Path) -> None:
    walk(tmp_path, Path(sys.executable).parent, 400)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_from_nothing_to_the_first_recovered_task_it_takes_less_than_five_minutes(tmp_path: Path) -> None:
    project, folder = source_tree(tmp_path / "project"), tmp_path / "empty"
    folder.mkdir()
    begun = time.monotonic()
    install = [step.replace("'ferryman[", f"'{project}[") for step in steps() if step.startswith(OF_INSTALLATION)]
    shell("\n".join(install), folder, Path(sys.executable).parent, 600)
    walk(folder, folder / "venv" / "bin", 600)
    assert time.monotonic() - begun < PROMISED_S


def steps() -> list[str]:
    """The commands of the page, in order."""
    return [command for block in blocks(PAGE) if block.language == "console" for command in commands(block)]


def walk(folder: Path, programs: Path, seconds: float) -> None:
    """Does all that the page says once ferryman is installed. ``programs``: the folder of Python and of ferryman's command."""
    port = str(free_port())
    (app,) = [block.text for block in blocks(PAGE) if block.language == "python"]
    (folder / "shop.py").write_text(app.replace("6379", port))
    run = [step.replace("6379", port) for step in steps() if not step.startswith(OF_INSTALLATION)]
    assert len(steps()) - len(run) == 2
    server, *rest = run
    with subprocess.Popen(server.split(), cwd=folder, env=environment(programs), stdout=subprocess.PIPE, text=True) as background:
        try:
            assert background.stdout is not None
            assert "is up" in background.stdout.readline()
            said = shell("\n".join([CELERY, *rest]), folder, programs, seconds)
        finally:
            background.send_signal(signal.SIGINT)
    assert background.returncode == 0
    assert said.split()[-5:] == ["1", "2", "3", "4", "5"], said


def shell(script: str, folder: Path, programs: Path, seconds: float) -> str:
    """What a script that ends well writes."""
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env=environment(programs),
        capture_output=True,
        text=True,
        timeout=seconds,
        start_new_session=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(programs: Path) -> dict[str, str]:
    """That of a shell which finds these programs first."""
    return {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "C_FORCE_ROOT": "1"}
