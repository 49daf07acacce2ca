"""The examples for web frameworks, run with their own test clients on a real server."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from celery.signals import task_prerun
from ferryman.testing.broker import TaskBroker
from ferryman.testing.pytest_plugin import ferryman_broker, ferryman_server  # noqa: F401

from ..support.servers import free_port
from .pages import ROOT

pytestmark = pytest.mark.servers


def load(path: Path) -> Iterator[ModuleType]:
    """The module of an example, under the name that it has when a user runs it."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[path.stem]


@pytest.fixture
def api() -> Iterator[ModuleType]:
    yield from load(ROOT / "examples" / "fastapi" / "api.py")


def test_an_order_that_is_sent_twice_is_charged_once(api: ModuleType, ferryman_broker: TaskBroker) -> None:  # noqa: F811
    from fastapi.testclient import TestClient

    ferryman_broker.use(api.app)
    web = TestClient(api.web)
    replies = [web.post("/orders/17") for _ in range(2)]
    assert [reply.status_code for reply in replies] == [202, 202]
    ferryman_broker.assert_enqueued(api.charge, [17], times=1)
    run: list[str] = []

    def note(task_id: str, **_others: object) -> None:
        run.append(task_id)

    task_prerun.connect(note)
    try:
        ferryman_broker.drain()
    finally:
        task_prerun.disconnect(note)
    assert api.charged == [17]
    assert [reply.json()["task"] for reply in replies] == run * 2


def test_a_broker_that_is_away_is_told_to_the_client(api: ModuleType) -> None:
    from fastapi.testclient import TestClient

    api.app.conf.broker_url = f"ferryman://127.0.0.1:{free_port()}/0"
    api.app.conf.task_publish_retry = False
    assert TestClient(api.web).post("/orders/17").status_code == 503


def test_an_order_of_django_is_confirmed_after_its_commit(tmp_path: Path, ferryman_broker: TaskBroker) -> None:  # noqa: F811
    """In a process of its own: Django is configured once for each."""
    program = f"""
import django
django.setup()
from django.core.management import call_command
from django.test import Client
from ferryman.testing.broker import open_broker
from shop import app, models, tasks

call_command("migrate", run_syncdb=True, verbosity=0)
with open_broker({ferryman_broker.url!r}, "django") as broker:
    broker.use(app)
    reply = Client().post("/orders/ann@example.com")
    assert reply.status_code == 201, reply.content
    broker.assert_enqueued(tasks.confirm, [reply.json()["order"]], times=1)
    broker.drain()
assert list(models.Order.objects.values_list("customer", "confirmed")) == [("ann@example.com", True)]
"""
    environment = os.environ | {"DATABASE": str(tmp_path / "shop.sqlite3"), "DJANGO_SETTINGS_MODULE": "settings"}
    command, folder = [sys.executable, "-c", program], ROOT / "examples" / "django"
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
