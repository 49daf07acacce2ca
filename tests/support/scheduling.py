"""Which of the processes that share the tests runs which file; ``tests/conftest.py`` hands it to pytest-xdist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from xdist.scheduler import LoadFileScheduling

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController

SPARK_PROCESSES = 2
"""How many processes start a Spark session, which takes ten seconds and half a gigabyte each."""
SPARK = "tests/spark/"


class FewSessions(LoadFileScheduling):  # type: ignore[misc]
    """A file at a time: the first processes take Spark's before any other, and the rest take them when nothing else is left."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        wants_spark = node in self.nodes[:SPARK_PROCESSES]
        wanted = next((file for file in self.workqueue if file.startswith(SPARK) == wants_spark), None)
        if wanted is not None:
            self.workqueue.move_to_end(wanted, last=False)
        super()._assign_work_unit(node)
