"""``spark-submit`` to a cluster whose executors have no ferryman: the application brings it along."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from ferryman.compat.kue.generate import generate
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import UsageError
from ferryman.schema.fact import Entry
from ferryman.schema.family import get_family
from ferryman.schema.rule import Finding
from ferryman.spark.session import SUBMITTED
from ferryman.testing.keyspaces import dump, store

from ..support.packages import ROOT, archive, bare_python, source_tree
from ..support.servers import Server
from ..support.standalone import SPARK_HOME, Standalone

NOW = 1_795_262_676_000
JOBS = 500
APPLICATION = ROOT / "examples" / "carry.py"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What executors run: a Python without ferryman."""
    return bare_python(tmp_path_factory.mktemp("bare"))


@pytest.fixture
def source(server: Server, client: redis.Redis) -> Iterator[Address]:
    """A kue keyspace that is read with a password which the driver and the workers have in their environment."""
    store(client, get_family("kue"), "q", generate(JOBS, 7, NOW))
    client.execute_command("ACL", "SETUSER", "auditor", "reset", "on", "~*", "+@all", ">sesame")
    yield Address.parse(f"ferryman://auditor@{server.host}:{server.port}/0?family=kue&password_env=QUEUE_PASSWORD")
    client.execute_command("ACL", "DELUSER", "auditor")


def submit(cluster: Standalone, options: list[str], *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Submits the example, and waits for its end."""
    loopback = ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.ui.enabled=false"]
    sizes = ["--driver-memory", "512m", "--executor-memory", "512m"]
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.url, *loopback, *sizes, *options]
    surroundings = {"SPARK_HOME": str(SPARK_HOME), "JAVA_HOME": str(cluster.java_home), "SPARK_LOCAL_IP": "127.0.0.1"}
    surroundings |= {"PYSPARK_DRIVER_PYTHON": sys.executable, "QUEUE_PASSWORD": "sesame", **environment}
    return subprocess.run(
        [*command, str(APPLICATION), *arguments],
        capture_output=True,
        text=True,
        timeout=580,
        env={**os.environ, **surroundings},
        check=False,
    )


def check_carried(done: subprocess.CompletedProcess[str], server: Server, source: Address) -> None:
    """The application must have found and written what the local engine finds and writes."""
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    target, twin = Address.parse(server.url(1)), Address.parse(server.url(2))
    local, findings = LocalEngine(), list[Finding]()
    census = local.audit(source, printed["now_ms"], findings.append)
    assert (printed["jobs"], printed["findings"]) == (census.jobs, Counter(finding.rule for finding in findings))
    summary = local.migrate(source, twin, Plan.between(source, twin, printed["now_ms"]), lambda _: None)
    assert printed["matched"] == printed["written"] == summary.written > 0
    assert keyspace(server, 1) == keyspace(server, 2)
    assert local.verify(source, target, Plan.between(source, target, printed["now_ms"]), pytest.fail).differences == 0


def keyspace(server: Server, db: int) -> dict[bytes, Entry]:
    """Every key of a target but the journal, which knows who wrote."""
    return {key: entry for key, entry in dump(server.client(db)).items() if not key.startswith(b"ferryman-migration:")}


def test_packages_that_are_sent_along_are_all_that_executors_need(
    cluster: Standalone, python: Path, server: Server, source: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUEUE_PASSWORD", "sesame")
    options = ["--archives", f"{archive(tmp_path)}#packages", "--conf", "spark.executorEnv.PYTHONPATH=packages"]
    work = tmp_path / "work"
    work.mkdir()
    done = submit(cluster, options, source.url(), server.url(1), str(work), PYSPARK_PYTHON=str(python))
    check_carried(done, server, source)
    assert list(work.iterdir()) == []
    assert "sesame" not in done.stderr + cluster.logs()


def test_executors_without_the_packages_are_one_line(
    cluster: Standalone, python: Path, server: Server, source: Address, tmp_path: Path
) -> None:
    done = submit(cluster, [], source.url(), server.url(1), str(tmp_path), PYSPARK_PYTHON=str(python))
    assert done.returncode == 3
    (line,) = done.stdout.splitlines()
    assert line.startswith("carry: the Python of Spark's executors has no module 'ferryman': ")
    assert dump(server.client(1)) == {}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_whole_environment_that_is_sent_along_is_enough(
    cluster: Standalone, server: Server, source: Address, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As docs/spark.md says it: a virtual environment, packed by venv-pack."""
    monkeypatch.setenv("QUEUE_PASSWORD", "sesame")
    environment, packed, work = tmp_path / "environment", tmp_path / "environment.tar.gz", tmp_path / "work"
    work.mkdir()
    tree = source_tree(tmp_path / "tree")
    for command in (
        [sys.executable, "-m", "venv", str(environment)],
        [f"{environment}/bin/pip", "install", "--quiet", f"{tree}[rdb]", "pyarrow", "pandas<3", "venv-pack", "setuptools<81"],
        [f"{environment}/bin/venv-pack", "--quiet", "--prefix", str(environment), "--output", str(packed)],
    ):
        subprocess.run(command, check=True, timeout=600)
    options = ["--archives", f"{packed}#environment"]
    done = submit(cluster, options, source.url(), server.url(1), str(work), PYSPARK_PYTHON="./environment/bin/python")
    check_carried(done, server, source)


def test_a_password_among_the_arguments_is_refused_before_spark_sees_it() -> None:
    program = "from ferryman.spark.session import session; session()"
    url = "ferryman://:sesame@localhost/0?family=kue"
    done = subprocess.run(
        [sys.executable, "-c", program, url], capture_output=True, text=True, env={**os.environ, SUBMITTED: "1"}, check=False
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"{UsageError.__module__}.UsageError: Spark shows the arguments of spark-submit")
    assert "sesame" not in last
