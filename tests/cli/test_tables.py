"""Tables in narrow terminals and in pipes: a name that another command takes, and a number, are whole or not there."""

from __future__ import annotations

import os
import pty
import re
import subprocess
from collections.abc import Iterator, Sequence
from io import StringIO

import pytest
import redis
from ferryman.cli.output import Format, Output
from ferryman.schema.connection.call import run
from ferryman.schema.native import codec
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from rich.console import Console

from ..conftest import SERVERS
from ..support.command import PROGRAM, ferryman, ferryman_process
from ..support.servers import Server

IDS = [f"6a1c7f1e-8f6b-4c3e-9d0a-2f9f3f1c8f1{number}" for number in range(5)]
QUEUE = "reports-of-the-night"
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@pytest.fixture(scope="module")
def any_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One kind: what is shown does not depend on it."""
    with SERVERS[0].start(tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def shop(server: Server, client: redis.Redis) -> Server:
    """A queue of Celery tasks, two of them dead."""
    scripts = QueueScripts()
    run(client, scripts.declare(QUEUE, {}))
    client.sadd("ferryman:queues", QUEUE)
    message = codec.encode(
        {"headers": {"task": "reports.nightly"}, "content-type": "application/json"}, b'[["' + b"x" * 90 + b'"]]'
    )
    run(client, scripts.publish(QUEUE, "p", [Publication(job_id, message) for job_id in IDS]))
    for job in run(client, scripts.take(QUEUE, "ann", 2, 30_000)).jobs:
        run(client, scripts.reject(QUEUE, "ann", job.id, "rejected", "no such mailbox"))
    return server


def on_a_terminal(columns: int, *arguments: str) -> list[str]:
    """What the command shows on a terminal of so many columns, line by line."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns)}
    with subprocess.Popen([*PROGRAM, *arguments], stdout=theirs, stderr=subprocess.PIPE, env=environment):
        os.close(theirs)
        shown = b""
        try:
            while chunk := os.read(ours, 65536):
                shown += chunk
        except OSError:  # how Linux says that the other end is closed
            pass
        finally:
            os.close(ours)
    return ESCAPES.sub("", shown.decode()).splitlines()


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_jobs_show_whole_ids_however_narrow_the_terminal(shop: Server, columns: int) -> None:
    lines = on_a_terminal(columns, "jobs", shop.url(), "--state", "waiting")
    assert [line.split()[0] for line in lines if "waiting" in line] == IDS[2:]
    assert max(map(len, lines)) <= columns


def test_what_is_left_out_is_named(shop: Server) -> None:
    lines = on_a_terminal(60, "jobs", shop.url())
    hint = "A wider terminal, or a pipe, shows priority, attempts, created, due, payload as well."
    assert " ".join(lines[-2:]).split() == hint.split()
    assert "as well" not in "".join(on_a_terminal(200, "jobs", shop.url()))


def test_dead_letters_show_whole_queues_and_ids(shop: Server) -> None:
    (line,) = [line for line in on_a_terminal(72, "dead", shop.url()) if QUEUE in line]
    assert line.split() == [QUEUE, "2", IDS[1]]


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_queues_show_no_half_of_a_name_or_number(shop: Server, columns: int) -> None:
    lines = on_a_terminal(columns, "queues", shop.url())
    head, numbers = (next(line.split() for line in lines if word in line) for word in ("waiting", QUEUE))
    assert dict(zip(head, numbers, strict=True))["waiting"] == "3"
    assert numbers[0] == QUEUE
    assert max(map(len, lines)) <= columns


def test_an_id_wider_than_the_terminal_goes_on_in_the_next_line() -> None:
    shown = table(30, ("id", "queue"), [("x" * 50 + "y", "mail")], whole=("id",))
    assert "".join(line.split()[0] for line in shown[2:] if line.split()) == "x" * 50 + "y"


def table(columns: int, names: Sequence[str], rows: Sequence[Sequence[object]], **options: Sequence[str]) -> list[str]:
    file = StringIO()
    console = Console(file=file, width=columns, force_terminal=True, color_system=None, highlight=False)
    Output(Format.TABLE, console).table("", names, rows, **options)  # type: ignore[arg-type]
    return file.getvalue().strip().splitlines()


def test_a_pipe_gets_everything_whole(server: Server, client: redis.Redis) -> None:
    name = "q" * 190
    client.hset("q:job:1", mapping={"type": name, "state": "failed", "data": '"' + "x" * 50 + '"'})
    outcome = ferryman_process("jobs", server.url(family="kue"), COLUMNS="60")
    (line,) = [line for line in outcome.stdout.splitlines() if "failed" in line]
    assert line.split() == ["1", name, "failed", "0", '"' + "x" * 50 + '"']


def test_a_migration_names_queues_whole(server: Server, client: redis.Redis) -> None:
    name = "q" * 190
    client.hset("q:job:1", mapping={"type": name, "state": "failed", "data": "{}"})
    outcome = ferryman("migrate", server.url(family="kue"), server.url(1))
    assert name in outcome.stdout
