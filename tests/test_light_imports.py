"""What is loaded at once, and what only by whom it serves: a worker begins as fast as its imports are few, and so does a command.

Modules are looked at, not clocks. Each case is a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

FOREIGN = (
    "ferryman.compat",
    "ferryman.transport.live.keyspace",
    "ferryman.transport.live.mapping",
    "ferryman.transport.live.timers",
)
FOREIGN_TASKS = ("ferryman.transport.celery.foreign_run", "ferryman.transport.celery.foreign_retry", "ferryman.schema.live")
OF_OTHERS = ("ferryman.migrations", "ferryman.operations", "ferryman.spark", "ferryman.cli", "ferryman.schema.job", "tomllib")
HEAVY = ("pyspark", "pyarrow", "numpy", "numba", "rich", "celery.worker", "gevent", "starlette", "opentelemetry.trace.span")


def loaded(program: str) -> set[str]:
    """The modules that a program has loaded in the end."""
    told = "import json, sys; print(json.dumps(sorted(sys.modules)), file=sys.__stdout__)"
    done = subprocess.run([sys.executable, "-c", f"{program}\n{told}"], capture_output=True, text=True, timeout=200, check=True)
    return set(json.loads(done.stdout))


def among(modules: set[str], names: tuple[str, ...]) -> list[str]:
    """Those that are one of the names, or stand below one."""
    return sorted(each for each in modules if each.startswith(tuple(f"{name}." for name in names)) or each in names)


def test_the_url_schemes_are_there_before_anything_is_loaded() -> None:
    modules = loaded("import ferryman.transport")
    assert among(modules, ("redis", "attr", "ferryman")) == ["ferryman", "ferryman.transport", "ferryman.transport.aliases"]


def test_the_transport_loads_nothing_that_its_own_queues_need_not() -> None:
    before = loaded("import redis, celery.app.amqp")
    modules = loaded("import redis, celery.app.amqp\nfrom ferryman.transport import Transport") - before
    assert among(modules, (*FOREIGN, *FOREIGN_TASKS, *OF_OTHERS, *HEAVY)) == []
    assert "ferryman.transport.channel" in modules


def test_a_publisher_on_its_own_queues_needs_none_of_it_either() -> None:
    publishing = """
from celery import Celery
app = Celery("shop", broker="ferryman://localhost:6379/0")
with app.connection_for_write() as connection:
    connection.transport
"""
    modules = loaded(publishing)
    assert among(modules, (*FOREIGN, *FOREIGN_TASKS, "ferryman.migrations", "ferryman.cli")) == []
    assert "ferryman.transport.session" in modules


def test_the_keyspace_of_another_system_loads_what_it_needs() -> None:
    modules = loaded("""
from kombu import Connection
import ferryman.transport
Connection("ferryman://localhost:6379/0?family=kue").transport
""")
    assert {"ferryman.compat.kue.live", "ferryman.transport.live.keyspace"} <= modules


@pytest.mark.parametrize("words", [["--help"], ["--version"]], ids=" ".join)
def test_help_waits_for_nothing_but_its_own_words(words: list[str]) -> None:
    modules = loaded(f"""
import contextlib, io
from ferryman.cli.main import main
with contextlib.redirect_stdout(io.StringIO()) as said, contextlib.suppress(SystemExit):
    main({words!r}, prog_name="ferryman")
assert "ferryman" in said.getvalue()
""")
    assert (
        among(modules, ("ferryman.schema", "ferryman.migrations", "ferryman.cli.output", "redis", "kombu", "attr", *HEAVY)) == []
    )
