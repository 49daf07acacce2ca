"""Every ``ferryman`` command of README and docs is run, on servers that hold what its page speaks of.

The commands of a block are run one after the other, as a reader would. Before that its server is emptied, and filled with a
generated keyspace for each address that a command reads, in which the rules are broken that the block repairs or accepts. Of
docs/from/ they are run by test_ways.py; ELSEWHERE says which tests run what needs more than a server.
"""

from __future__ import annotations

import ast
import contextlib
import re
import shlex
import shutil
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path

import pytest
import redis
from celery import Celery
from ferryman.schema.connection.call import run
from ferryman.schema.family import family_names
from ferryman.schema.native import codec
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from ..conftest import SERVERS
from ..support.clusters import Cluster, cluster
from ..support.command import PROGRAM, Outcome, ferryman
from ..support.servers import Server, free_port
from ..support.terminal import Terminal
from .console import ADDRESS
from .pages import PAGES, ROOT, page_name
from .test_commands import USES

pytestmark = pytest.mark.servers
ELSEWHERE = {
    "demo": "tests/cli/test_demo.py::test_the_demo_accounts_for_every_job_and_finds_all_injected_faults",
    "ui ferryman://localhost:6379/0 --write --proxy-header Remote-User --proxy-operator ann --public-host queues.example.org": (
        "tests/ui/test_behind_nginx.py::test_a_user_with_a_password_has_the_role_that_the_command_gives"
    ),
    "server --port 6379": "tests/docs/test_start.py::test_each_order_is_charged_though_the_worker_was_killed",
    "audit 'ferryman://localhost:6379/0?family=kue' --engine spark": "tests/spark/test_docs.py::test_a_command_of_the_page_runs",
    "migrate 'ferryman+rdb:///backup/dump.rdb?family=kue' ferryman://localhost:6379/1 --engine spark --partitions 64": (
        "tests/spark/test_docs.py::test_a_command_of_the_page_runs"
    ),
    "audit 'ferryman://queues:6379/0?family=kue&password_env=QUEUE_PASSWORD' --engine spark --master spark://head:7077"
    " --work /shared/ferryman --conf spark.executor.memory=2g": "tests/spark/test_docs.py::test_the_command_for_a_cluster_runs",
}
"""Commands that need a machine of their own, or Spark: the test that runs each."""
SERVING = ("metrics", "ui")
"""Commands that answer until they are stopped."""
ASKING = ("steer",)
"""Commands that ask a question in a terminal."""
QUESTION = "[y/N]"
JOBS = "300"
DAY_MS = 86_400_000
NODES = "node1:6379,node2:6379"
ADDRESSES = re.compile(r"ferryman(?:\+\w+)?://[^\s']+")
RULE = re.compile(r"--(?:repair|accept) (\S+)")
WORKER = re.compile(r"--worker (\S+)")
PREFIXES = {name: "NATIVE" if name == "ferryman" else name.upper() for name in family_names()}
"""Family -> what the names of its rules begin with."""
scripts = QueueScripts()


def one_line(text: str) -> str:
    return " ".join(text.split())


def spans() -> Iterator[tuple[str, str]]:
    """Page and arguments of the commands inside sentences that name a whole address."""
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
        for command in re.findall(r"`ferryman ([^`]*\w+://[^`]*)`", text):
            yield page_name(page), one_line(command)


def sequences() -> Iterator[tuple[str, tuple[str, ...]]]:
    """Where they stand, and the commands of each block; those of docs/from/ are not among them."""
    for (page, line), uses in groupby(USES, lambda use: (use[0].page, use[0].line)):
        commands = tuple(text for text in (one_line(text) for _, text in uses) if text not in ELSEWHERE)
        if commands and not page.startswith("from/"):
            yield f"{page}:{line}", commands
    for page, command in spans():
        yield f"{page}: {command}", (command,)


OF_BLOCKS = list(sequences())


# What the addresses of a page stand for


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with SERVERS[0].start(tmp_path_factory.mktemp("commands")) as running:
        yield running


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Cluster]]:
    """A cluster, started for the first page that needs it."""
    with contextlib.ExitStack() as stack:
        running: list[Cluster] = []

        def start() -> Cluster:
            if not running:
                running.append(stack.enter_context(cluster(SERVERS[0], tmp_path_factory.mktemp("cluster"))))
            return running[0]

        yield start


class Reader:
    """Who types the commands: in a folder of its own, with a server, a snapshot of it, and a cluster if need be."""

    def __init__(self, server: Server, folder: Path, nodes: Callable[[], Cluster]) -> None:
        self.server, self.folder, self.nodes = server, folder, nodes

    def here(self, command: str) -> list[str]:
        """The words of a command, on the servers and files of this test."""
        if NODES in command:
            found = re.search(r"//(.*)/0", self.nodes().url())
            assert found is not None
            command = command.replace(NODES, found[1])
        command = command.replace(ADDRESS, f"{self.server.host}:{self.server.port}").replace("/backup/", f"{self.folder}/backup/")
        return shlex.split(command)

    def type(self, command: str) -> Outcome:
        words = self.here(command)
        if words[0] in SERVING:
            return self.asked(words)
        if words[0] in ASKING:
            return self.confirmed(words)
        return ferryman(*words)

    @staticmethod
    def confirmed(words: list[str]) -> Outcome:
        """In a terminal, whose question is answered with yes."""
        with Terminal.start(*words, columns=200) as terminal:
            terminal.wait_for(QUESTION)
            terminal.press("y\n")
            return Outcome(terminal.end(), terminal.screen, "")

    def asked(self, words: list[str]) -> Outcome:
        """What a page or the numbers of Prometheus answer: it is started, asked and stopped."""
        port = str(free_port())
        if "--listen" in words:
            words[words.index("--listen") + 1] = port
        else:
            words += ["--listen", port]
        with subprocess.Popen([*PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                text = self._first_answer(f"http://127.0.0.1:{port}/", process)
            finally:
                process.send_signal(signal.SIGINT)
                stopped = process.wait(120)
        assert stopped in (0, 128 + signal.SIGINT)
        return Outcome(0, text, "")

    @staticmethod
    def _first_answer(url: str, process: subprocess.Popen[str]) -> str:
        deadline = time.monotonic() + 120
        while True:
            try:
                with urllib.request.urlopen(url, timeout=10) as reply:
                    text: str = reply.read().decode("utf-8")
                    return text
            except OSError:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.1)

    def fill(self, commands: tuple[str, ...], client: redis.Redis) -> None:
        """Every keyspace that the commands read and none of them writes."""
        client.flushall()
        broken = sorted({rule for command in commands for rule in RULE.findall(command)})
        known: set[str] = set()
        for command in commands:
            source, *targets = ADDRESSES.findall(command)
            if source not in known:
                self._generate(source, [rule for rule in broken if rule.startswith(PREFIXES[_family(source)])])
            known.update((source, *targets))
        if any(" mail" in command for command in commands):
            fill_mail(client)
        for worker in WORKER.findall(" ".join(commands)):
            for member in client.zrange("q:jobs:active", 0, -1):
                client.hset(b"q:job:" + member.partition(b"|")[2], "workerId", worker)

    def _generate(self, address: str, broken: list[str]) -> None:
        """Yesterday's jobs, and three that break each rule."""
        source = re.sub(r"ferryman\+rdb:///\S+?\.rdb", f"ferryman://{ADDRESS}/0", address)
        if "&sep=" in source:
            _publish_with_separators(self.server)
            return
        damage = [word for rule in broken for word in ("--damage", f"{rule}=3")]
        day_ago = str(time.time_ns() // 1_000_000 - DAY_MS)
        (url,) = self.here(f"'{source}'")
        generated = ferryman("generate", url, "--jobs", JOBS, "--now", day_ago, *damage)
        assert generated.status == 0, generated.stderr
        if source != address:
            self.server.client().save()
            (self.folder / "backup").mkdir(exist_ok=True)
            shutil.copy(self.server.folder / "dump.rdb", self.folder / "backup" / "dump.rdb")


def _family(address: str) -> str:
    found = re.search(r"[?&]family=(\w+)", address)
    return found[1] if found else "ferryman"


def _publish_with_separators(server: Server) -> None:
    """As Celery does it on ``redis://`` with ``sep`` and ten steps of priority; generated queues have it in their names."""
    options = {"sep": ":", "priority_steps": list(range(10)), "queue_order_strategy": "priority"}
    with Celery(broker=f"redis://{server.host}:{server.port}/0", broker_transport_options=options) as app:
        for priority in range(10):
            app.send_task("report", [priority], priority=priority, ignore_result=True)
    assert server.client().keys("celery:*")


def fill_mail(client: redis.Redis) -> None:
    """A queue ``mail`` with jobs that wait, and one that died of a timeout two hours ago."""
    run(client, scripts.declare("mail", {}))
    client.sadd("ferryman:queues", "mail")
    head = {"headers": {"id": "1", "task": "send"}, "content-type": "application/json", "properties": {}}
    message = codec.encode(head, b"[[1], {}, {}]")
    run(client, scripts.publish("mail", "mail", [Publication(str(number), message) for number in range(3)]))
    (taken,) = run(client, scripts.take("mail", "ann", 1, 30_000)).jobs
    run(client, scripts.reject("mail", "ann", taken.id, "rejected", "Timeout: no answer"))
    client.zincrby("ferryman:{mail}:dead", -DAY_MS / 12, taken.id)


# What commands answer


def check(command: str, done: Outcome, folder: Path) -> None:
    """That a command has done what a reader expects of it."""
    name = command.split()[0]
    said = f"ferryman {command}\n{done.stdout}{done.stderr}"
    assert done.status <= (name == "audit"), said
    assert done.stdout.strip(), said
    if "--repair" in command:
        outcome = "mended" if "--apply" in command else "planned"
        assert re.search(rf"^[1-9]\d* {outcome}", done.stdout, re.MULTILINE), said
    elif name == "migrate":
        outcome = "would be written" if "--dry-run" in command else "written"
        assert re.search(rf"[1-9]\d* {outcome} \(", done.stdout), said
    elif name == "verify":
        assert "no differences" in done.stdout, said
    elif name == "steer":
        assert "1 " in done.stdout, said
    for rule in re.findall(r"--accept (\S+)", command):
        assert f"by {rule}:" not in done.stdout, said
    for report in re.findall(r"--report (\S+)", command):
        assert (folder / report).exists(), said


@pytest.mark.parametrize("commands", [commands for _, commands in OF_BLOCKS], ids=[place for place, _ in OF_BLOCKS])
def test_the_commands_of_a_block_run(
    server: Server, nodes: Callable[[], Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    reader = Reader(server, tmp_path, nodes)
    with server.client() as client:
        reader.fill(commands, client)
        for command in commands:
            check(command, reader.type(command), tmp_path)


def test_each_command_that_is_run_elsewhere_stands_in_the_docs_and_has_its_test() -> None:
    texts = {one_line(text) for _, text in USES}
    for command, test in ELSEWHERE.items():
        assert command in texts
        file, _, name = test.partition("::")
        functions = [node.name for node in ast.parse((ROOT / file).read_text("utf-8")).body if isinstance(node, ast.FunctionDef)]
        assert name in functions, test


def test_no_command_is_left_out() -> None:
    here = {command for _, commands in OF_BLOCKS for command in commands}
    ways = {one_line(text) for block, text in USES if block.page.startswith("from/")}
    assert {one_line(text) for _, text in USES} <= here | ways | set(ELSEWHERE)
    assert len(here) > 35
