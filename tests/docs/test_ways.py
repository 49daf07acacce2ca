"""The ways of docs/from/ are gone step by step, on keyspaces of the original software: each command prints what its page says.

Celery's workers are real ones, and run until the command after them prints its numbers.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..conftest import SERVERS
from ..support.captures import Capture, capture, load
from ..support.servers import Server
from .console import ADDRESS, Typed, prints, run, steps, wait_until_printed
from .pages import ROOT, Block

pytestmark = pytest.mark.servers
FOLDER = ROOT / "docs" / "from"
LIVE = "## Live"
"""Headings of what is done instead of all the rest: the keyspace is there again as it was."""
CASES = {
    "bee": ("bee", "crashed"),
    "kickq": ("kickq", "crashed"),
    "kue": ("kue", "crashed"),
    "pjq": ("pjq", "crashed"),
    "qless": ("qless", "crashed"),
    "redis": ("kombu", "healthy"),
}
"""Page -> the captured keyspace whose numbers it has. That of redis:// has messages which a killed worker held."""
LIVE_CASES = {"pjq": ("pjq", "healthy")}
"""Where the part about live workers has another: those of the crashed one are refused."""
PARTS = ("Audit", "Repair", "Rehearse", "Stop", "Migrate", "Verify", "Roll back", "Live")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with SERVERS[0].start(tmp_path_factory.mktemp("ways")) as running:
        yield running


@contextlib.contextmanager
def worker(command: str, source: str, server: Server, folder: Path) -> Iterator[None]:
    """``celery -A NAME worker …`` with the program of the page as NAME.py; it ends warm."""
    program, *words = shlex.split(command)
    assert (program, words[0]) == ("celery", "-A"), f"{command}: nothing runs this"
    (folder / f"{words[1]}.py").write_text(source.replace(ADDRESS, f"{server.host}:{server.port}"))
    environment = os.environ | {"C_FORCE_ROOT": "1"}
    with (folder / "worker.log").open("ab") as log:
        command_line = [sys.executable, "-m", "celery", *words]
        process = subprocess.Popen(command_line, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        yield
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    except BaseException:
        print((folder / "worker.log").read_text("utf-8"))
        raise
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def line_of(page: Path, heading: str) -> int:
    """Where a part of a page begins."""
    return page.read_text("utf-8").split("\n").index(heading) + 1


def fill(server: Server, case: Capture) -> None:
    client = server.client()
    client.flushall()
    load(case, client)


@pytest.mark.parametrize("name", CASES)
def test_a_way_can_be_gone_as_it_is_told(name: str, server: Server, tmp_path: Path) -> None:
    page = FOLDER / f"{name}.md"
    fill(server, capture(*CASES[name]))
    source, at_work, live, is_live = "", "", line_of(page, LIVE), False
    for step in steps(page):
        if not is_live and step.line > live:
            fill(server, capture(*LIVE_CASES.get(name, CASES[name])))
            is_live = True
        if isinstance(step, Block):
            source = step.text
        elif step.command.startswith("celery "):
            at_work = step.command
        elif at_work:
            with worker(at_work, source, server, tmp_path):
                wait_until_printed(step, lambda step=step: run(step.command, server))  # type: ignore[misc]
            at_work = ""
        else:
            outcome = run(step.command, server)
            assert outcome.stdout, f"{step}\n{outcome.stderr}"
            assert prints(step, outcome.stdout), f"{step}\n{outcome.stdout}{outcome.stderr}"
    assert is_live
    assert not at_work


@pytest.mark.parametrize("name", CASES)
def test_a_way_has_all_its_parts_in_order_and_numbers_in_each(name: str) -> None:
    text = (FOLDER / f"{name}.md").read_text("utf-8")
    parts = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert tuple(part.partition("\n")[0] for part in parts) == PARTS
    commands = {step.command for step in steps(FOLDER / f"{name}.md") if isinstance(step, Typed) and any(step.printed)}
    for words in ("audit", "audit.* --apply", "migrate.* --dry-run", "migrate", "verify", "queues"):
        assert any(re.match(f"ferryman {words}", command) for command in commands), words


def test_each_system_has_its_way() -> None:
    assert sorted(page.stem for page in FOLDER.glob("*.md")) == sorted(CASES)
