"""The first page is walked as a stranger walks it, but for the installation: an app, a server, a killed worker, no task lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ferryman.cli.embedded import free_port

from .pages import ROOT, blocks, commands

pytestmark = pytest.mark.servers
PAGE = ROOT / "docs" / "start.md"
CELERY = 'celery() { exec python -m celery "$@"; }'
"""The program may not be on the path of who runs the tests."""
OF_INSTALLATION = ("python3 -m venv", "pip install")


def test_each_order_is_charged_though_the_worker_was_killed(tmp_path: Path) -> None:
    port = str(free_port())
    (app,) = [block.text for block in blocks(PAGE) if block.language == "python"]
    (tmp_path / "shop.py").write_text(app.replace("6379", port))
    steps = [command for block in blocks(PAGE) if block.language == "console" for command in commands(block)]
    run = [step.replace("6379", port) for step in steps if not step.startswith(OF_INSTALLATION)]
    assert len(steps) - len(run) == 2
    server, *rest = run
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "C_FORCE_ROOT": "1"}

    with subprocess.Popen(server.split(), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as background:
        try:
            assert background.stdout is not None
            assert "is up" in background.stdout.readline()
            done = subprocess.run(
                ["bash", "-c", "\n".join([CELERY, *rest])],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=120,
                start_new_session=True,
                check=False,
            )
        finally:
            background.send_signal(signal.SIGINT)
    assert background.returncode == 0
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.split()[-5:] == ["1", "2", "3", "4", "5"], done.stdout + done.stderr
