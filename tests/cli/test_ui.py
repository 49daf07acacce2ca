"""``ferryman ui``: its options and their mistakes, and the process that serves."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ..support.command import PROGRAM, ferryman
from ..support.servers import Server

URL = "ferryman://localhost:1/0"
SECRET = "a-secret-of-enough-letters"


@contextlib.contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """``ferryman ui …``, and where it listens; killed at the end of the block unless it has ended."""
    with subprocess.Popen([*PROGRAM, "ui", *arguments], stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield process, process.stderr.readline().split()[-1]
        finally:
            process.kill()


def test_help_has_an_example_and_every_option() -> None:
    outcome = ferryman("ui", "--help")
    assert outcome.status == 0
    assert "  ferryman ui " in outcome.stdout
    for option in ("--listen", "--write", "--reader-token", "--operator-token", "--proxy-header", "--public-host", "--audit-log"):
        assert option in outcome.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--listen", "0.0.0.0:0"], "can be reached from other machines"),
        (["--listen", "[::]:0"], "can be reached from other machines"),
        (["--listen", "192.0.2.7:8000"], "can be reached from other machines"),
        (["--listen", "nowhere"], "is not [HOST:]PORT"),
        (["--listen", "99999"], "is not [HOST:]PORT"),
        (["--operator-token", SECRET], "never stands on a command line"),
        (["--operator-token", "env:NOT_THERE_AT_ALL"], "holds no token of at least 16 characters"),
        (["--operator-token", "file:/not/there"], "can't be read"),
        (["--reader-token", "env:"], "say where the token stands"),
        (["--proxy-operator", "ann"], "give --proxy-header"),
        (["--proxy-header", "Remote-User", "--proxy-from", "10.0.0.0/8"], "is not an IP address"),
        (["--audit-log", "/not/there/log"], "can't be written"),
    ],
)
def test_a_mistake_is_one_sentence(arguments: list[str], said: str) -> None:
    outcome = ferryman("ui", URL, *arguments)
    assert outcome.status == 2
    assert said in outcome.error
    assert SECRET not in outcome.error


def test_two_roles_need_two_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UI_TOKEN", SECRET)
    outcome = ferryman("ui", URL, "--reader-token", "env:UI_TOKEN", "--operator-token", "env:UI_TOKEN")
    assert (outcome.status, "readers would be operators" in outcome.error) == (2, True)


def test_a_snapshot_and_a_cluster_are_no_server() -> None:
    for url in ("ferryman+rdb:///tmp/dump.rdb?family=kue", "ferryman+cluster://localhost:1/0"):
        outcome = ferryman("ui", url)
        assert (outcome.status, "one server" in outcome.error) == (2, True)


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        outcome = ferryman("ui", URL, "--listen", str(taken.getsockname()[1]))
    assert outcome.status == 2
    assert "can't listen on 127.0.0.1" in outcome.error


def test_without_its_extra_the_error_names_what_to_install() -> None:
    program = (
        "import sys; sys.modules['starlette'] = None; sys.modules['starlette.applications'] = None;"
        f"from ferryman.cli.main import main; main(['ui', '{URL}', '--listen', '0'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=300)
    assert done.returncode == 2
    assert b"pip install 'ferryman[ui]'" in done.stderr


def test_it_serves_until_a_signal_and_tells_no_token(server: Server, tmp_path: Path) -> None:
    token, log = tmp_path / "token", tmp_path / "actions"
    token.write_text(SECRET + "\n")
    arguments = ["--listen", "0", "--write", "--operator-token", f"file:{token}", "--audit-log", str(log)]
    with serving(server.url(), *arguments) as (process, base):
        headers = {"Authorization": f"Bearer {SECRET}"}
        assert httpx.get(base, headers=headers, timeout=60).status_code == 200
        assert httpx.get(base, timeout=60).status_code == 303
        acted = httpx.post(f"{base}queue/act?queue=mail", data={"action": "pause"}, headers=headers, timeout=60)
        assert acted.status_code in (303, 400)
        with httpx.stream("GET", f"{base}live/queues", headers=headers, timeout=60) as stream:
            assert next(stream.iter_lines()) == "retry: 3000"
            process.send_signal(signal.SIGTERM)
            assert process.wait(120) in (0, -signal.SIGTERM)
        assert process.stderr is not None
        rest = process.stderr.read()
        assert SECRET not in rest + log.read_text()
        assert "Traceback" not in rest
