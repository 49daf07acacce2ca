"""What the docs say about Spark is run as it stands: snippets of docs/spark.md and README, commands with ``--engine spark``.

The snippets of a page are run one after the other and share their names, as in a notebook; whatever DataFrame one makes is read.
"""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from ferryman.compat.kue.client import KueClient
from ferryman.schema.connection.call import run
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from pyspark.sql import DataFrame, SparkSession

from ..docs.console import ADDRESS
from ..docs.pages import ROOT, Block, blocks
from ..docs.test_commands import USES
from ..docs.test_commands_run import ELSEWHERE, one_line
from ..support.command import Outcome, ferryman, ferryman_process
from ..support.servers import Server
from ..support.standalone import Standalone

PAGE = ROOT / "docs" / "spark.md"
MISTYPED, MENDED = b"ann@exmaple.org", b"ann@example.org"
SECONDS = 120
"""Longest wait for what Spark does at once."""
scripts = QueueScripts()


@pytest.fixture
def kue(server: Server, client: redis.Redis) -> redis.Redis:
    """A keyspace of kue with a job 4711, and a mail that has failed since its address is mistyped."""
    assert ferryman("generate", server.url(family="kue"), "--jobs", "60", "--damage", "KUE-4=1").status == 0
    client.set("q:ids", 4710)
    with KueClient(server.url()) as producer:
        producer.put("mail", {"to": MISTYPED.decode()})
        (job,) = producer.take("mail")
        producer.fail(job, "no such host")
        producer.put("mail", {"to": "bob@example.org"})
    return client


# Snippets


class Notebook:
    """Runs blocks; gives the rows of each DataFrame that they made."""

    def __init__(self, spark: SparkSession, server: Server, folder: Path) -> None:
        self.names: dict[str, Any] = {"spark": spark}
        self._server, self._folder = server, folder

    def here(self, text: str) -> str:
        return text.replace(ADDRESS, f"{self._server.host}:{self._server.port}").replace("/shared/", f"{self._folder}/")

    def run(self, block: Block) -> list[list[Any]]:
        text = self.here(block.text)
        if block.language == "sql":
            return [self.names["spark"].sql(statement).collect() for statement in text.split(";") if statement.strip()]
        return [value.collect() for value in self._values(text) if isinstance(value, DataFrame) and not value.isStreaming]

    def _values(self, text: str) -> Iterator[Any]:
        """What each statement gives, or assigns."""
        for statement in ast.parse(text).body:
            if isinstance(statement, ast.Expr):
                shown = ast.Assign([ast.Name("_", ast.Store())], statement.value)
                exec(compile(ast.fix_missing_locations(ast.Module([shown], [])), "<docs>", "exec"), self.names)
                yield self.names["_"]
                continue
            exec(compile(ast.Module([statement], []), "<docs>", "exec"), self.names)
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                yield self.names[statement.targets[0].id]


def of_spark() -> list[Block]:
    return [block for block in blocks(PAGE) if block.language in ("python", "sql") and "ferryman.cli" not in block.text]


def wait_for(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_snippets_of_the_page_run(
    spark: SparkSession, server: Server, kue: redis.Redis, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notebook = Notebook(spark, server, tmp_path)
    first, sql, some, publishing, stream, entries, by_index, watching = of_spark()
    target = server.client(1)

    (jobs,) = notebook.run(first)
    assert {"4711", "4712"} < {job.id for job in jobs}
    assert run(target, scripts.size("mail")).dead == run(target, scripts.size("mail")).waiting == 1
    try:
        assert sum(row[2] for row in notebook.run(sql)[1]) == len(jobs)
    finally:
        spark.catalog.dropTempView("jobs")

    by_where, by_id, by_options, by_index_of_failed, limited = notebook.run(some)
    assert [job.id for job in by_where] == [job.id for job in by_id] == ["4711"]
    assert {(job.id, job.error) for job in by_options} == {("4711", "no such host"), ("4712", None)}
    assert [job.id for job in by_index_of_failed] == ["4711"]
    assert len(limited) == min(100, len(jobs)), "an option of another reading has stayed"

    notebook.run(publishing)
    size = run(target, scripts.size("mail"))
    assert (size.dead, size.waiting) == (0, 2)
    payloads = b"".join(b"".join(target.hvals(key)) for key in target.keys("ferryman:{mail}:job:*"))
    assert MENDED in payloads
    assert MISTYPED not in payloads

    columns = "id string, queue string, name string, state string, payload binary"
    frame = spark.createDataFrame([("new-1", "mail", "mail.send", "waiting", b'"ann"')], columns)
    frame.coalesce(1).write.parquet(str(tmp_path / "orders"))
    notebook.run(stream)
    try:
        wait_for(lambda: run(target, scripts.size("mail")).waiting == 3)
    finally:
        notebook.names["query"].stop()

    keys, records = notebook.run(entries)
    assert len(keys) == kue.dbsize()
    assert {"key", "state", "type", "priority"} == set(records[0].asDict())
    (indexed,) = notebook.run(by_index)
    assert 0 < len(indexed) <= len(records)

    notebook.run(watching)
    try:
        wait_for(lambda: "no such host" in capsys.readouterr().out)
    finally:
        notebook.names["alarms"].stop()


@pytest.mark.usefixtures("kue")
def test_the_snippet_of_the_readme_runs(spark: SparkSession, server: Server, tmp_path: Path) -> None:
    (snippet,) = [block for block in blocks(ROOT / "README.md") if block.language == "python" and "spark" in block.text]
    (jobs,) = Notebook(spark, server, tmp_path).run(snippet)
    assert {"4711", "4712"} < {job.id for job in jobs}


def test_the_program_that_submits_a_command_is_that_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (program,) = [block for block in blocks(PAGE) if block.language == "python" and "ferryman.cli" in block.text]
    monkeypatch.setattr(sys, "argv", ["ferryman_command.py", "--version"])
    with pytest.raises(SystemExit) as end:
        exec(program.text, {})
    assert end.value.code == 0
    assert re.search(r"\d+\.\d+", capsys.readouterr().out)


# Commands


def commands(test: str) -> list[str]:
    """Those that test_commands_run.py leaves to a test of this file."""
    return [command for command, name in ELSEWHERE.items() if name == f"tests/spark/test_docs.py::{test}"]


def here(command: str, server: Server, folder: Path) -> list[str]:
    text = command.replace(ADDRESS, f"{server.host}:{server.port}").replace("/backup/", f"{folder}/")
    return shlex.split(text.replace("queues:6379", f"{server.host}:{server.port}").replace("/shared/", f"{folder}/"))


def check(done: Outcome) -> None:
    assert done.status <= 1, done.stdout + done.stderr
    assert re.search(r"KUE-4  error  1×|6\d written \(", done.stdout), done.stdout + done.stderr


@pytest.mark.parametrize("command", commands("test_a_command_of_the_page_runs"))
@pytest.mark.usefixtures("spark")
def test_a_command_of_the_page_runs(server: Server, kue: redis.Redis, tmp_path: Path, command: str) -> None:
    kue.save()
    shutil.copy(server.folder / "dump.rdb", tmp_path / "dump.rdb")
    check(ferryman(*here(command, server, tmp_path)))


@pytest.mark.slow
def test_the_command_for_a_cluster_runs(cluster: Standalone, server: Server, kue: redis.Redis, tmp_path: Path) -> None:
    """With less memory: the machine of the tests has not so much for each executor."""
    (command,) = commands("test_the_command_for_a_cluster_runs")
    words = here(command.replace("spark://head:7077", cluster.url).replace("=2g", "=512m"), server, tmp_path)
    (tmp_path / "ferryman").mkdir()
    kue.config_set("requirepass", "sesame")
    try:
        variables = {"QUEUE_PASSWORD": "sesame", "SPARK_LOCAL_IP": "127.0.0.1"}
        check(ferryman_process(*words, "--conf", "spark.driver.memory=512m", **variables))
    finally:
        kue.config_set("requirepass", "")


def test_all_commands_of_the_page_are_run_here() -> None:
    of_page = {one_line(text) for block, text in USES if block.page == "spark.md" and "--engine spark" in text}
    named = {*commands("test_a_command_of_the_page_runs"), *commands("test_the_command_for_a_cluster_runs")}
    assert of_page == named
