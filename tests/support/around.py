"""Programs around the broker, each with an app of its own in ``tests/around/apps``, always in processes of their own.

Several of these packages patch Celery itself when they are switched on; no other test may notice.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from . import workers
from .servers import Server
from .workers import ROOT, Worker, environment

APPS = "tests.around.apps"
OWN_DB = 2
"""The database in which such programs keep what is theirs."""


def app_of(name: str) -> str:
    """What ``celery -A`` is told."""
    return f"{APPS}.{name}"


def own_url(server: Server) -> str:
    """The address for programs that use Redis themselves: they know nothing of ``ferryman://``."""
    return f"redis://{server.host}:{server.port}/{OWN_DB}"


def python(server: Server, name: str, program: str, **settings: object) -> subprocess.CompletedProcess[str]:
    """Runs a program that has imported everything from one of the apps."""
    return subprocess.run(
        [sys.executable, "-c", f"from {app_of(name)} import *\n{program}"],
        cwd=ROOT,
        env=environment(server, own=own_url(server), **settings),
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def said(server: Server, name: str, program: str, **settings: object) -> str:
    """What it prints; fails if it does."""
    done = python(server, name, program, **settings)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def beat(server: Server, folder: Path, name: str, *options: str, **settings: object) -> AbstractContextManager[Worker]:
    """``celery beat`` with one of the apps."""
    return workers.beat(server, folder, *options, app=app_of(name), own=own_url(server), **settings)
