"""Session: the one SparkSession of this process, set up so that nothing but ferryman speaks on the terminal.

Starting it takes seconds, so it is kept and reused; a session that the caller has made already is used as it is. Without a
master elsewhere it listens on the loopback interface only. Never changes the environment for longer than the start takes.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from .java import find_java, private_home

TASK_ATTEMPTS = 4
"""How often a task is tried: a broken connection costs a range, not the run."""

LOGGING = """
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = {level}
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""

SETTINGS: Mapping[str, str] = {
    "spark.app.name": "ferryman",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.sql.session.timeZone": "UTC",
    # Larger batches are no faster, and a batch is what a task holds in memory.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    # A second copy of a task would write the same jobs at the same time; fences make that harmless, not useful.
    "spark.speculation": "false",
    "spark.sql.sources.default": "parquet",
}


ON_THIS_MACHINE: Mapping[str, str] = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""Nobody else needs to reach a driver whose executors are in its own process."""

BRIEF_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For runs of a minute: a Java that compiles quickly, not well, halves their time."""


def session(master: str | None = None, settings: Mapping[str, str] | None = None, *, brief: bool = False) -> SparkSession:
    """The running session, or a new one on this machine's cores.

    ``brief``: little work is to come. All arguments only matter for a new one. Raises UsageError when no Java can be found. With
    FERRYMAN_DEBUG set in the environment Spark logs its warnings to stderr.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    folder = Path(tempfile.mkdtemp(prefix="ferryman-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    logging = folder / "log4j2.properties"
    logging.write_text(LOGGING.format(level="warn" if os.environ.get("FERRYMAN_DEBUG") else "off"))
    place = master or f"local[{os.cpu_count() or 2},{TASK_ATTEMPTS}]"
    is_here = place.startswith("local")
    builder = SparkSession.builder.master(place)
    chosen = {
        **SETTINGS,
        **(ON_THIS_MACHINE if is_here else {}),
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()} {BRIEF_JAVA if brief else ''}",
        "spark.local.dir": str(folder / "local"),
        **(settings or {}),
    }
    for name, value in chosen.items():
        builder = builder.config(name, value)
    home = private_home(folder, find_java())
    local_ip = {"SPARK_LOCAL_IP": "127.0.0.1"} if is_here else {}
    with _environment(JAVA_HOME=str(home), PYSPARK_PYTHON=sys.executable, **local_ip):
        return builder.getOrCreate()


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Sets variables inside the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
