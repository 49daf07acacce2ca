"""SparkEngine: carries keyspaces of any size with Spark, by the same steps as on one machine. Called by the command line."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from pyspark.sql import SparkSession

from ..migrations.engine import Progress
from ..migrations.engine.file_carrier import FileCarrier
from ..migrations.engine.resume import work_folder
from ..migrations.engine.runner import Runner
from ..migrations.prefiltering_reader import has_prefilter
from ..migrations.source import open_source
from ..migrations.throttle import UNTHROTTLED, Throttle
from ..schema.connection.address import Address
from . import preflight
from .runner import SparkRunner
from .session import local_tasks, session

BRIEF_KEYS = 200_000
BRIEF_PREFILTERED_KEYS = 5_000_000
"""Up to so many keys in the database, a new session is set up for a short life: more where Java has little to do."""


class SparkEngine(FileCarrier):
    """The engine of ``--engine spark``.

    ``spark``: the session to use instead of one of its own. ``work``: a folder that all executors can reach, for snapshots;
    needed unless Spark runs on this machine alone. ``tasks``, ``throttle``: as for Carrier. ``master``: where a session of its
    own runs, instead of the cores of this machine. ``settings``: Spark's, for such a session.
    """

    name = "spark"

    def __init__(
        self,
        spark: SparkSession | None = None,
        work: str | None = None,
        tasks: int | None = None,
        master: str | None = None,
        throttle: Throttle = UNTHROTTLED,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(work, tasks, throttle)
        self._given = spark
        self._master = master
        self._settings = settings

    def _cores(self) -> int:
        running = self._given or SparkSession.getActiveSession()
        if running is not None:
            return int(running.sparkContext.defaultParallelism)
        return local_tasks() if self._master is None else 1

    @contextlib.contextmanager
    def _session(self, source: Address, progress: Progress, found: str | None = None) -> Iterator[tuple[Runner, str]]:
        brief = False
        if found is None:
            with open_source(source) as opened:
                # A server that is down, or a file that is not there, is known before Spark has taken its seconds to start.
                brief = opened.size() <= (BRIEF_PREFILTERED_KEYS if has_prefilter(source) else BRIEF_KEYS)
        with work_folder(self._work, found) as folder:
            progress("starting Spark", 0, None)
            spark = self._given or session(self._master, self._settings, brief=brief, tables=False)
            preflight.check(spark, folder, progress)
            yield SparkRunner(spark), folder
