"""A Spark cluster on this machine: a master and workers as processes of their own, ended by pid when the test is over."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark
from attrs import frozen
from ferryman.spark.java import find_java, private_home

from .servers import free_port
from .topologies import wait_until

SPARK_HOME = Path(pyspark.__file__).parent
MEMORY = "-Xmx256m"
QUICK = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]


@frozen
class Standalone:
    """The running cluster."""

    url: str
    """What ``--master`` wants."""
    folder: Path
    """Holds ``master.log``, and a folder for each worker with what its executors print."""
    java_home: Path

    def logs(self) -> str:
        """Everything that the master, the workers and their executors have printed."""
        paths = (*self.folder.glob("*.log"), *self.folder.glob("worker*/app-*/*/std*"))
        return "\n".join(path.read_text(errors="replace") for path in sorted(paths))


@contextlib.contextmanager
def standalone(folder: Path, workers: int = 2, **environment: str) -> Iterator[Standalone]:
    """A cluster whose workers have one core and 1 GB each, and ``environment`` beside what every process has."""
    folder.mkdir()
    home = private_home(folder, _quick_java(folder / "java.sh"))
    port = free_port()
    cluster = Standalone(f"spark://127.0.0.1:{port}", folder, home)
    spark = "org.apache.spark.deploy"
    with contextlib.ExitStack() as stack:
        master = [f"{spark}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]
        stack.enter_context(_daemon(cluster, "master", master, environment))
        wait_until(lambda: "I have been elected leader" in _log(folder, "master"))
        for number in range(workers):
            name = f"worker{number}"
            worker = [f"{spark}.worker.Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
            stack.enter_context(_daemon(cluster, name, [*worker, "--work-dir", str(folder / name), cluster.url], environment))
        for number in range(workers):
            wait_until(lambda name=f"worker{number}": "Successfully registered" in _log(folder, name))  # type: ignore[misc]
        yield cluster


def _quick_java(script: Path) -> Path:
    """The Java of the cluster, its executors and who is submitted to it: none runs so long that it should compile well."""
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(find_java()))} {" ".join(QUICK)} "$@"\n')
    script.chmod(0o700)
    return script


@contextlib.contextmanager
def _daemon(cluster: Standalone, name: str, command: list[str], environment: dict[str, str]) -> Iterator[None]:
    java = [str(cluster.java_home / "bin" / "java"), MEMORY, "-cp", f"{SPARK_HOME / 'jars'}/*"]
    settings = {"JAVA_HOME": str(cluster.java_home), "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    # What Spark's start scripts know; workers ask for it when they start executors.
    settings["SPARK_SCALA_VERSION"] = "2.13"
    surroundings = {**os.environ, **settings, **environment}
    # Executors must find their packages by themselves, not by what the tests were started with.
    surroundings.pop("PYTHONPATH", None)
    with (cluster.folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen([*java, *command], stdout=log, stderr=log, env=surroundings)
        with process:
            try:
                yield
            finally:
                # A worker that is asked to end ends its executors first.
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()


def _log(folder: Path, name: str) -> str:
    return (folder / f"{name}.log").read_text(errors="replace")
