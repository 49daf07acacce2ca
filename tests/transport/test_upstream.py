"""What kombu and Celery test themselves, run from their own source distributions with our transport.

kombu has tests for every transport. Celery's integration tests run against any broker; some need programs or packages that are
not here, some fail on any busy machine, and so ``redis://`` beside it says what ``ferryman://`` has to pass. They need
pydantic and pytest-subtests as well.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from xml.etree import ElementTree

import pytest

from ..support import sdists
from ..support.servers import Server, installed_servers

SUITE = Path(__file__).parents[1] / "support" / "kombu_suite.py"

CELERY_FILES = [
    "beat",
    "canvas",
    "connection_recovery",
    "group_chains",
    "inspect",
    "loader",
    "redis_backend",
    "request_backend_down",
]
CELERY_FILES += ["security", "serialization", "tasks", "upgrade", "worker"]
OTHERWISE = {"test_scheduled"}
"""It compares all that ``inspect scheduled`` says; here that is marked as waiting in the broker."""


SIDE_BY_SIDE = 4
"""So many of kombu's classes are asked at once, each on a server of its own: their tests sleep for a minute in all."""


@pytest.mark.servers
def test_everything_that_kombu_asks_of_any_transport_holds(pytestconfig, tmp_path):
    source = sdists.unpacked("kombu", pytestconfig.cache, tmp_path)
    shutil.copy(SUITE, source / "t" / "integration" / "test_ferryman.py")

    def ask(name: str) -> subprocess.CompletedProcess[str]:
        folder = tmp_path / name
        folder.mkdir()
        with installed_servers()[0].start(folder) as server:
            environment = {**os.environ, "FERRYMAN_TEST_BROKER": server.url()}
            tests = f"t/integration/test_ferryman.py::{name}"
            return sdists.run_tests(source, "-c", os.devnull, tests, environment=environment, seconds=240)

    names = re.findall(r"^class (Test\w+)", SUITE.read_text(), re.MULTILINE)
    assert names
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for run in pool.map(ask, names):
            assert run.returncode == 0, run.stdout + run.stderr
            assert " passed" in run.stdout


@pytest.mark.slow
@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("name", CELERY_FILES)
def test_what_celery_passes_on_redis_it_passes_here(pytestconfig, tmp_path, name):
    source = sdists.unpacked("celery", pytestconfig.cache, tmp_path)
    with installed_servers()[0].start(tmp_path) as server:
        expected = passed(source, name, "redis", server)
        if not expected:
            pytest.skip(f"nothing of test_{name}.py passes on redis:// here")
        missing = expected - passed(source, name, "ferryman", server) - OTHERWISE
        if missing:  # a busy machine fails now this one, now that one
            missing -= passed(
                source, name, "ferryman", server, "-k", " or ".join(sorted(each.partition("[")[0] for each in missing))
            )
    assert not missing


def passed(source: Path, name: str, scheme: str, server: Server, *options: str) -> set[str]:
    """The names of the tests in one of Celery's files that pass on a broker."""
    with server.client() as client:
        client.flushall()
    address = f"{server.host}:{server.port}"
    environment = {
        **os.environ,
        "TEST_BROKER": f"{scheme}://{address}/0",
        "TEST_BACKEND": f"redis://{address}/1",
        "REDIS_HOST": server.host,
        "REDIS_PORT": str(server.port),
    }
    report = source / "report.xml"
    report.unlink(missing_ok=True)
    # The plugin is Celery's own, and comes with its package pytest-celery otherwise.
    own = ["-p", "celery.contrib.pytest", "--timeout", "120", "--junitxml", str(report)]
    sdists.run_tests(source, *own, *options, f"t/integration/test_{name}.py", environment=environment, seconds=3600)
    if not report.exists():
        return set()
    cases = list(ElementTree.parse(report).iter("testcase"))
    others = {case.get("name") for case in cases for word in ("failure", "error", "skipped") if case.find(word) is not None}
    return {str(case.get("name")) for case in cases} - others
