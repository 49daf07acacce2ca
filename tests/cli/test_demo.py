"""``ferryman demo`` as a user starts it. With Spark it runs in CI on the installed wheel; here the local engine is enough."""

from __future__ import annotations

import subprocess
import sys

import pytest
from ferryman.schema.native import keys


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ferryman.cli", "demo", "--engine", "local", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=580, check=False)


@pytest.mark.servers
def test_the_demo_accounts_for_every_job_and_finds_all_injected_faults():
    shown = demo("--jobs", "300")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert "37 faults were injected, 37 of them found" in shown.stdout
    assert "run again, because its worker was killed" in shown.stdout
    assert "334" in shown.stdout.split("all jobs of the source")[1].splitlines()[0]
    assert "UNACCOUNTED" not in shown.stdout
    assert shown.stderr == ""


def test_the_demo_runs_on_the_users_own_empty_database(server):
    shown = demo("--jobs", "100", "--url", server.url(db=3))
    assert shown.returncode == 0, shown.stdout + shown.stderr
    with server.client(3) as client:
        assert client.exists(keys.queues("ferryman"))


def test_the_demo_refuses_a_database_that_holds_anything(server, client):
    client.set("mine", "precious")
    shown = demo("--url", server.url())
    assert shown.returncode == 2
    assert shown.stderr.count("\n") == 1
    assert "holds 1 key; the demo needs an empty one" in shown.stderr
    assert client.keys() == [b"mine"]
