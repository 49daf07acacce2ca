"""``ferryman top`` in a real terminal, by real key presses, and where there is none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from ferryman.operations.watch import Watch
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.call import run
from ferryman.schema.errors import UsageError
from ferryman.schema.family import get_family
from ferryman.schema.live import NewJob
from ferryman.schema.native import keys
from ferryman.schema.native.keys import DEFAULT_PREFIX
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from rich.cells import cell_len

from ...support.command import ferryman, ferryman_process
from ...support.native import jobs
from ...support.servers import Server, installed_servers
from ...support.terminal import Terminal

pytestmark = pytest.mark.in_turn

COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


def declare(client: redis.Redis, queue: str) -> None:
    """A queue that lasts."""
    scripts = QueueScripts("ferryman")
    client.sadd(keys.queues("ferryman"), queue)
    run(client, scripts.declare(queue, {}))


@pytest.fixture
def queues(client: redis.Redis) -> QueueScripts:
    scripts = QueueScripts("ferryman")
    for number, name in enumerate(("audio", "mail", "video"), 1):
        declare(client, name)
        run(client, scripts.publish(name, f"p{number}", jobs(*range(number))))
    return scripts


@pytest.fixture
def terminal(server: Server, queues: QueueScripts) -> Iterator[Terminal]:
    assert queues.prefix == "ferryman"
    with Terminal.start("top", server.url(), "--interval", "0.2", "--write") as started:
        started.wait_for("3 queues", "audio", "mail", "video")
        yield started


def order(terminal: Terminal) -> list[str]:
    return [line[2:].split()[0] for line in terminal.lines[2:-1] if line.strip()]


def test_it_shows_the_numbers_and_goes_on_looking(terminal: Terminal, client: redis.Redis, queues: QueueScripts) -> None:
    assert re.search(r"video +3 +0 +0", terminal.screen)
    run(client, queues.publish("video", "p9", jobs(*range(10, 14))))
    terminal.wait_for_line(r"video +7 +0 +0 ")
    terminal.press("q")
    assert terminal.end() == 0
    assert b"\x1b[?1049l" in terminal.written
    assert not COLOUR.search(terminal.written.replace(b"\x1b[0m", b""))


@pytest.mark.usefixtures("queues")
def test_no_line_is_wider_than_the_terminal(server: Server, client: redis.Redis) -> None:
    for name in ("長い" * 60, "bell\x07\x1b[31mred\u202egnitide", "<b>&amp;"):
        declare(client, name)
    for columns in (80, 30, 10):
        with Terminal.start("top", server.url(), columns=columns) as narrow:
            narrow.wait_for("mai")
            assert max(map(cell_len, narrow.lines)) <= columns
            assert b"\x07" not in narrow.written
            assert b"\x1b[31m" not in narrow.written
            narrow.press("q")
            assert narrow.end() == 0


def test_keys_filter(terminal: Terminal) -> None:
    terminal.press("/mAi")
    terminal.wait_for("filter: mAi_", "mail", without="video")
    terminal.press("\r")
    terminal.wait_for("1 queue", "filter 'mAi'", without="video")
    terminal.press("\x1b")
    terminal.wait_for("3 queues", "video")


def test_keys_sort(terminal: Terminal) -> None:
    assert order(terminal) == ["audio", "mail", "video"]
    terminal.press("s")
    terminal.wait_for("waiting*")
    assert order(terminal) == ["video", "mail", "audio"]
    terminal.press("r")
    terminal.press("S")
    terminal.wait_for("queue*")
    assert order(terminal) == ["video", "mail", "audio"]


def test_keys_stop_and_go_on(terminal: Terminal, client: redis.Redis, queues: QueueScripts) -> None:
    terminal.press(" ")
    terminal.wait_for("STOPPED")
    run(client, queues.publish("audio", "p9", jobs(*range(10, 18))))
    terminal.press("s")
    assert re.search(r"audio +1 ", terminal.wait_for("waiting*", "STOPPED"))
    terminal.press(" ")
    terminal.wait_for_line(r"audio +9 ")
    assert "STOPPED" not in terminal.screen


def test_a_key_pauses_and_resumes_a_queue_after_a_question(terminal: Terminal, client: redis.Redis, queues: QueueScripts) -> None:
    terminal.press("p")
    terminal.wait_for("choose a queue")
    terminal.press("\x1b[B\x1b[Bp")
    terminal.wait_for("> mail", "pause queue mail?")
    terminal.press("n")
    terminal.wait_for("nothing was done")
    terminal.press("py")
    terminal.wait_for("mail (paused)")
    assert run(client, queues.size("mail")).paused
    terminal.press("py")
    terminal.wait_for("goes on", without="(paused)")
    assert not run(client, queues.size("mail")).paused


@pytest.mark.usefixtures("queues")
def test_nothing_is_paused_without_write(server: Server) -> None:
    with Terminal.start("top", server.url()) as reader:
        reader.wait_for("mail")
        reader.press("jp")
        reader.wait_for("with --write only")


def test_it_goes_on_when_a_server_comes_back(tmp_path: Path) -> None:
    kind = installed_servers()[-1]
    with kind.start(tmp_path) as first:
        declare(first.client(), "mail")
        port, url = first.port, first.url()
        with Terminal.start("top", url, "--interval", "0.2") as watching:
            watching.wait_for("mail")
            first.client().shutdown(nosave=True)
            watching.wait_for("mail", "trying again")
            with kind.start(tmp_path, port=port) as second:
                declare(second.client(), "video")
                watching.wait_for("video", without="trying again")


@pytest.mark.usefixtures("queues")
def test_into_a_pipe_or_a_dumb_terminal_it_prints_one_table(server: Server) -> None:
    lines = ferryman_process("top", server.url()).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["queue*", "audio", "mail", "video"]
    with Terminal.start("top", server.url(), TERM="dumb") as dumb:
        assert dumb.end() == 0
        assert b"\x1b" not in dumb.written
        assert b"video" in dumb.written
    with Terminal.start("top", server.url(), "--count", "2", "--interval", "0.1") as counted:
        assert counted.end() == 0
        assert counted.written.count(b"video") == 2


@pytest.mark.usefixtures("queues")
@pytest.mark.parametrize("name", ["ferryman", "kue", "qless"])
def test_a_look_sends_at_most_two_commands_a_queue(server: Server, client: redis.Redis, name: str) -> None:
    family = get_family(name)
    live = family.live(family.default_prefix, DEFAULT_PREFIX)
    for queue in ("mail", "video", "audio") if live is not None else ():
        run(client, live.put(NewJob(queue, b"{}", "Klass" if live.has_names else None)))
    watch = Watch(Address.parse(server.url(family=name)))
    watch.look()
    with client.monitor() as monitor:
        look = watch.look()
        client.ping()
        monitored = []
        for told in monitor.listen():
            if told["command"] == "PING":
                break
            monitored += [] if told["client_type"] == "lua" else [told["command"]]
    watch.close()
    assert set(look.found) == {"mail", "video", "audio"}
    assert len(monitored) <= 2 * 3 + 4, monitored  # beside: where connections begin, the names of the queues


@pytest.mark.parametrize("name", ["kue", "qless", "bee", "kickq", "pjq", "kombu"])
def test_queues_of_other_systems_are_watched(server: Server, client: redis.Redis, name: str) -> None:
    family = get_family(name)
    live = family.live(family.default_prefix, DEFAULT_PREFIX)
    assert live is not None
    payload = b'{"body":"","content-encoding":"utf-8","content-type":"a/b","headers":{},"properties":{}}'
    run(client, live.put(NewJob("mail", payload, "Klass" if live.has_names else None)))
    (line,) = ferryman("top", server.url(family=name), "--format", "json").lines()
    assert (line["queue"], line["waiting"]) == ("mail", 1)
    assert ("failed" in line) == (name == "kue")


def test_rates_are_told_from_counters(server: Server, client: redis.Redis, queues: QueueScripts) -> None:
    watch = Watch(Address.parse(server.url()))
    assert watch.look().rates == {}
    run(client, queues.publish("mail", "p9", jobs(*range(10, 15))))
    look = watch.look()
    assert look.rates["mail"]["in"] > 0
    assert look.rates["video"] == {"in": 0, "out": 0}
    watch.close()


def test_what_cannot_be_watched_is_refused() -> None:
    with pytest.raises(UsageError, match="snapshot"):
        Watch(Address.parse("ferryman+rdb:///dump.rdb"))


def test_a_server_that_is_not_there_is_one_clear_line() -> None:
    outcome = ferryman("top", "ferryman://127.0.0.1:1/0")
    assert outcome.status == 3
    assert "127.0.0.1:1" in outcome.error
