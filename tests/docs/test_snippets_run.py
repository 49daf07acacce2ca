"""Every Python snippet of README and docs is run, on a real server, and does what its page says.

Those of a page are run one after the other and share their names; where one begins with an ``app`` of the reader's, it gets one.
Those of docs/from/ are run by test_ways.py; ELSEWHERE says which tests run the others.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from attrs import frozen
from celery import Celery
from celery.schedules import schedule
from ferryman.schema.connection.call import run
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from ..conftest import SERVERS
from ..support.servers import Server
from .console import ADDRESS
from .pages import PAGES, ROOT, Block, blocks, page_name
from .test_commands_run import fill_mail

pytestmark = pytest.mark.servers
ELSEWHERE = {
    ("README.md", "spark.read"): "tests/spark/test_docs.py::test_the_snippet_of_the_readme_runs",
    ("live.md", "Client("): "tests/live/test_docs.py::test_an_example_runs",
    ("spark.md", "from ferryman.cli.main import main"): (
        "tests/spark/test_docs.py::test_the_program_that_submits_a_command_is_that_command"
    ),
    ("spark.md", ""): "tests/spark/test_docs.py::test_the_snippets_of_the_page_run",
    ("start.md", ""): "tests/docs/test_start.py::test_each_order_is_charged_though_the_worker_was_killed",
}
"""Page and a part of the snippet -> the test that runs it. The first that fits counts."""
ANN = {"to": "ann@example.com", "subject": "Welcome"}
scripts = QueueScripts()


def elsewhere(block: Block) -> str | None:
    """The test that runs a snippet instead of those here."""
    fitting = (test for (page, part), test in ELSEWHERE.items() if page == block.page and part in block.text)
    return next(fitting, None)


def snippets(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == "python" and elsewhere(block) is None]


@pytest.fixture(scope="module")
def one_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with SERVERS[0].start(tmp_path_factory.mktemp("snippets")) as running:
        yield running


@frozen
class Page:
    """A page whose snippets are run: what they have made, and where."""

    name: str
    server: Server
    client: redis.Redis
    folder: Path
    names: dict[str, Any]

    @property
    def texts(self) -> list[str]:
        """Its snippets, for the server of this test."""
        here = f"{self.server.host}:{self.server.port}"
        return [block.text.replace(ADDRESS, here) for block in snippets((ROOT / "docs" / self.name).resolve())]

    def run(self) -> None:
        for text in self.texts:
            exec(compile(text, self.name, "exec"), self.names)

    def size(self, queue: str, db: int = 0) -> Any:
        """How many messages of a queue of ferryman's own are where."""
        return run(self.server.client(db), scripts.size(queue))


@pytest.fixture
def page(one_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Page:
    """A page, with a server that is empty and an app of the reader's."""
    monkeypatch.chdir(tmp_path)
    client = one_server.client()
    client.flushall()
    app = Celery("shop", broker=one_server.url())
    names = {"__name__": "snippets", "Celery": Celery, "app": app}
    return Page(request.param, one_server, client, tmp_path, names)


def of(name: str) -> pytest.MarkDecorator:
    """The page of a test."""
    return pytest.mark.parametrize("page", [name], indirect=True)


@of("../README.md")
def test_readme(page: Page) -> None:
    for text, queue in zip(page.texts, ("celery", "email"), strict=True):
        exec(text, page.names)
        page.names["app"].send_task(queue, [ANN], queue=queue)
    assert page.size("celery").waiting == 1
    job = page.client.hgetall("q:job:1")
    assert (job[b"type"], json.loads(job[b"data"])) == (b"email", ANN)


@of("index.md")
def test_the_first_page(page: Page) -> None:
    page.run()
    page.names["app"].send_task("charge", [17])
    assert page.size("celery").waiting == 1


@of("from-other-queues.md")
def test_a_carried_job_is_a_task(page: Page, capsys: pytest.CaptureFixture[str]) -> None:
    page.run()
    page.names["email"].delay(ANN)
    assert page.size("celery", 1).waiting == 1
    page.names["email"].apply([ANN])
    assert capsys.readouterr().out == "to ann@example.com\n"


@of("live.md")
def test_a_task_on_the_queues_of_kue(page: Page) -> None:
    sent = []
    page.names["send"] = lambda *words: sent.append(words)
    page.run()
    page.names["email"].apply_async([ANN], queue="email")
    assert page.client.zcard("q:jobs:email:inactive") == 1
    page.names["email"].apply([ANN])
    assert sent == [("ann@example.com", "Welcome")]


@of("production.md")
def test_settings_for_production(page: Page) -> None:
    page.run()
    page.names["app"].send_task("charge", [17])
    assert page.size("shop").waiting == 1
    with page.names["app"].connection_for_write() as connection:
        settings = connection.default_channel.session.settings
        assert (settings.lease_ms, settings.delivery_limit) == (30_000, 20)


@of("around.md")
def test_redbeat_and_superset(page: Page) -> None:
    pytest.importorskip("redbeat")
    from redbeat import RedBeatSchedulerEntry

    page.run()
    RedBeatSchedulerEntry("hourly", "report", schedule(3600), app=page.names["app"]).save()
    assert page.client.exists("redbeat:hourly")
    superset = Celery("superset")
    superset.config_from_object(page.names["CELERY_CONFIG"])
    superset.send_task("thumbnail")
    assert page.size("celery").waiting == 1


@of("steering.md")
def test_dead_letters_are_put_back_and_a_file_says_who_did_it(page: Page) -> None:
    fill_mail(page.client)
    assert page.size("mail").dead == 1
    page.run()
    assert (page.size("mail").dead, page.size("mail").waiting) == (0, 3)
    (line,) = (page.folder / "actions.jsonl").read_text("utf-8").splitlines()
    assert {"by": "nightly", "action": "requeue", "queue": "mail", "done": 1}.items() <= json.loads(line).items()


@of("testing.md")
def test_the_test_of_an_app(page: Page) -> None:
    """By a pytest of its own, beside the app of the example."""
    (text,) = page.texts
    (page.folder / "test_shop.py").write_text(text)
    environment = os.environ | {"PYTHONPATH": str(ROOT / "examples" / "testing")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_shop.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_no_snippet_is_left_out() -> None:
    here = {
        mark.args[1][0].removeprefix("../")
        for test in globals().values()
        for mark in getattr(test, "pytestmark", ())
        if mark.args[:1] == ("page",)
    }
    wanted = {page_name(page) for page in PAGES if snippets(page) and not page_name(page).startswith("from/")}
    assert here == wanted


@pytest.mark.parametrize(("name", "part"), ELSEWHERE)
def test_what_is_run_elsewhere_stands_in_the_docs_and_has_its_test(name: str, part: str) -> None:
    file, _, test = ELSEWHERE[name, part].partition("::")
    assert test in [node.name for node in ast.parse((ROOT / file).read_text("utf-8")).body if isinstance(node, ast.FunctionDef)]
    (page,) = [page for page in PAGES if page_name(page) == name]
    assert any(elsewhere(block) == ELSEWHERE[name, part] for block in blocks(page) if block.language == "python")
