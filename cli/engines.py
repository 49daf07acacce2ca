"""Engines: which one a command uses, from its options. Spark is imported only when it is asked for: most users don't have it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from ..migrations.engine import Engine
from ..migrations.local import LocalEngine, has_columnar
from ..migrations.throttle import UNTHROTTLED, Throttle
from ..schema.errors import UsageError
from .status import Status

Command = Callable[..., Status]


def get_engine(
    name: str,
    master: str | None = None,
    work: str | None = None,
    partitions: int | None = None,
    throttle: Throttle = UNTHROTTLED,
    settings: Mapping[str, str] | None = None,
) -> Engine:
    """The engine of this name. Raises UsageError with the command to install it, if it is not there.

    ``master`` and ``settings`` are Spark's: see SparkEngine.
    """
    if name == LocalEngine.name:
        if master or settings:
            raise UsageError("--master and --conf are for --engine spark")
        if (work or partitions) and not has_columnar():
            raise UsageError("--work and --partitions need processes: pip install 'ferryman[columnar]'")
        return LocalEngine(throttle, work, partitions)
    try:
        from ..spark.engine import SparkEngine
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "pyarrow"):
            raise
        raise UsageError(f"--engine spark needs {error.name}: pip install 'ferryman[spark]'") from None
    return SparkEngine(work=work, tasks=partitions, master=master, throttle=throttle, settings=settings)


def engine_options(command: Command) -> Command:
    """``--engine`` and what belongs to it; the command gets an Engine as ``engine``."""

    @functools.wraps(command)
    def with_engine(
        *args: Any,
        engine_name: str,
        master: str | None,
        work: str | None,
        partitions: int | None,
        throttle: str | None,
        conf: tuple[str, ...],
        **others: Any,
    ) -> Status:
        pace = Throttle.parse(throttle) if throttle else UNTHROTTLED
        engine = get_engine(engine_name, master, work, partitions, pace, _settings(conf))
        return command(*args, engine=engine, **others)

    decorated: Command = with_engine
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated


def _settings(given: Sequence[str]) -> Mapping[str, str]:
    """Spark's settings by name. Raises UsageError for one that is not written as ``name=value``."""
    settings = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not (separator and name.startswith("spark.")):
            raise UsageError("--conf is written as spark.name=value")
        settings[name] = value
    return settings


_OPTIONS: tuple[Callable[[Command], Command], ...] = (
    click.option(
        "--engine",
        "engine_name",
        type=click.Choice(["local", "spark"]),
        default="local",
        show_default=True,
        help="local: this machine, of a large keyspace all cores (pip install 'ferryman[columnar]'). spark: a cluster "
        "(pip install 'ferryman[spark]').",
    ),
    click.option("--master", metavar="URL", help="Spark: the cluster to use. Default: the cores of this machine."),
    click.option(
        "--work",
        metavar="DIR",
        help="A folder for what is read; all executors share it: a path, or, for Spark, a URL (s3://, gs://, abfs://, hdfs://). "
        "Default: a temporary one, for this machine alone.",
    ),
    click.option(
        "--partitions", type=click.IntRange(min=1), metavar="N", help="Into how many parts the work is cut. Default: by size."
    ),
    click.option(
        "--conf",
        metavar="NAME=VALUE",
        multiple=True,
        help="Spark: a setting of its own, as in spark.executor.memory=4g. Repeatable.",
    ),
    click.option(
        "--throttle",
        metavar="RATE",
        help="Read a server at no more than so many keys a second, or 'polite': 20,000, and fewer while the server is busy.",
    ),
)
