"""Session: the one SparkSession of this process, set up so that nothing but ferryman speaks on the terminal.

Starting it takes seconds, so it is kept and reused; a session that the caller has made already is used as it is. Without a
master elsewhere it listens on the loopback interface only. Under ``spark-submit``, which has started Java and chosen the
cluster, only what ferryman's steps need is added. Never changes the environment for longer than the start takes.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from ..schema.connection.address import Address
from ..schema.errors import ServerError, UsageError
from .failures import spark_errors
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

STEPS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    # Larger batches are no faster, and a batch is what a task holds in memory.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "5000",
    # A second copy of a task would write the same jobs at the same time; fences make that harmless, not useful.
    "spark.speculation": "false",
    # Of two steps at the same time, each has half of the tasks: they wait for different servers.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.sources.default": "parquet",
}
"""What ferryman's steps are made for, wherever they run."""

TERMINAL: Mapping[str, str] = {
    "spark.app.name": "ferryman",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
}
"""For a Spark that nobody knows to be there."""

ON_THIS_MACHINE: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.daemon.module": "ferryman.spark.daemon",
}
"""Nobody else needs to reach a driver whose executors are in its own process, and its tasks have the Python of the driver."""

LONGEST_SOCKET_FOLDER = 60
"""Bytes of the path of a folder in which Spark can make its sockets: with their names, of 43, some systems take 103."""

BRIEF_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For runs of a minute: a Java that compiles quickly, not well, halves their time."""

LASTING_JAVA = (
    "-XX:Tier4InvocationThreshold=100000 -XX:Tier4MinInvocationThreshold=50000 "
    "-XX:Tier4CompileThreshold=200000 -XX:Tier4BackEdgeThreshold=1000000"
)
"""For longer ones, and for tables: a Java that compiles well what is done twenty times as often as it usually asks for. Rows pass
through that within seconds; of all else the usual Java compiles for half a minute what then saves it nothing."""

TRUSTING_JAVA = "-Darrow.enable_unsafe_memory_access=true"
"""Arrow does not check every access to its own memory, which spares an eighth of the time in which Java takes records."""

ARCHIVE = "FERRYMAN_JAVA_ARCHIVE"
"""The environment variable that names a file for the classes which Java loads, so that the next Java need not prepare them."""

EXECUTOR_PYTHON = "spark.pyspark.python"
SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""The environment variable by which a program knows that ``spark-submit`` has started it."""
MASTER_TIMEOUT = 5.0
"""Seconds in which a master must accept a connection. Spark itself tries for a minute before it says so."""


def session(
    master: str | None = None, settings: Mapping[str, str] | None = None, *, brief: bool = False, tables: bool = True
) -> SparkSession:
    """The running session, or a new one, by default on this machine's cores.

    ``settings``: Spark's own, which win. ``brief``: little work is to come. ``tables``: some of it with the data source. All
    arguments only matter for a new session. Raises UsageError when no Java can be found, or when ``spark-submit`` was given a
    password, and ServerError when the master does not answer. With FERRYMAN_DEBUG set in the environment Spark logs its warnings
    to stderr; ``ARCHIVE`` names a file that makes starting quicker.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if SUBMITTED in os.environ:
        if any(map(_has_password, sys.argv)):
            raise UsageError(
                "Spark shows the arguments of spark-submit in its event log and its web page: let the URL name its password by "
                "password_env= or password_file="
            )
        return _build(master, {**STEPS, **(settings or {})})
    master_url = master or f"local[{local_tasks()},{TASK_ATTEMPTS}]"
    _must_answer(master_url)
    folder = Path(tempfile.mkdtemp(prefix="ferryman-spark-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    logging = folder / "log4j2.properties"
    logging.write_text(LOGGING.format(level="warn" if os.environ.get("FERRYMAN_DEBUG") else "off"))
    java = [f"-Dlog4j2.configurationFile={logging.as_uri()}", TRUSTING_JAVA, BRIEF_JAVA if brief else LASTING_JAVA, *_archive()]
    chosen = {
        **STEPS,
        **TERMINAL,
        "spark.driver.extraJavaOptions": " ".join(java),
        **({**ON_THIS_MACHINE, **_folders(folder, tables=tables)} if is_here(master_url) else {}),
        **(settings or {}),
    }
    home = private_home(folder, find_java())
    with _environment(JAVA_HOME=str(home), **_interpreter(master_url, chosen)):
        return _build(master_url, chosen)


def _folders(folder: Path, *, tables: bool) -> Mapping[str, str]:
    """What Spark keeps on this machine is below a folder that goes when this process ends: its files, and its sockets.

    Over TCP, Java and Python wait for each other's acknowledgements, 40 ms for each task. Unix sockets are known since Spark 4.1.
    But where tables are read, the process in which Spark plans that would complain when the session ends that Java has gone; all
    others are quiet (daemon.py).
    """
    files = {"spark.local.dir": str(folder / "local")}
    if tables or len(os.fsencode(folder)) > LONGEST_SOCKET_FOLDER:
        return files
    return {**files, "spark.python.unix.domain.socket.enabled": "true", "spark.python.unix.domain.socket.dir": str(folder)}


def _archive() -> list[str]:
    """The options of Java that make the file when this Java ends, or use one that is there; an unfit one Java leaves alone."""
    path = os.environ.get(ARCHIVE)
    if not path:
        return []
    use = "SharedArchiveFile" if os.path.exists(path) else "ArchiveClassesAtExit"
    return [f'"-XX:{use}={path}"', "-Xlog:cds*=off"]


def local_tasks() -> int:
    """The tasks that work side by side on this machine, without a master elsewhere: one for each core and up to four more.

    Some of them always wait for a server.
    """
    cores = os.cpu_count() or 2
    return cores + min(cores, 4)


def is_here(master: str) -> bool:
    """Whether the executors of this master are in the driver's own process."""
    return master == "local" or master.startswith("local[")


def _build(master: str | None, settings: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder
    if master is not None:
        builder = builder.master(master)
    with spark_errors():
        return builder.config(map=dict(settings)).getOrCreate()


def _interpreter(master: str, settings: Mapping[str, str]) -> Mapping[str, str]:
    """The environment by which Spark finds the Python of its tasks. On a cluster the user may know a better one than ours."""
    if is_here(master):
        return {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    return {"PYSPARK_PYTHON": settings.get(EXECUTOR_PYTHON) or os.environ.get("PYSPARK_PYTHON") or sys.executable}


def _has_password(argument: str) -> bool:
    try:
        return Address.parse(argument).password is not None
    except UsageError:
        return False


def _must_answer(master: str) -> None:
    """Raises ServerError when none of a standalone cluster's masters accepts a connection."""
    scheme, _, hosts = master.partition("://")
    if scheme != "spark":
        return
    for each in hosts.split(","):
        host, _, port = each.rpartition(":")
        with contextlib.suppress(OSError, ValueError), socket.create_connection((host, int(port)), MASTER_TIMEOUT):
            return
    raise ServerError(f"{master}: no Spark master answers there; is the address the one that its log and its web page show?")


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
