"""GcPaused: who keeps a whole keyspace, or a share of it, in memory is spared the search for cycles among values that have none.

Python's collector goes through all that is alive again and again while it grows, which takes as long as the work itself.
Reference counts free values as ever. Called by the local engine and for Spark tasks.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

YOUNG, MIDDLE, OLD = 50_000, 20, 1_000
"""The collector's thresholds: new values are looked at, those that have lived for a while never in practice."""


@contextlib.contextmanager
def gc_paused() -> Iterator[None]:
    """Old values are left alone inside the block, in the whole process."""
    before = gc.get_threshold()
    gc.set_threshold(YOUNG, MIDDLE, OLD)
    try:
        yield
    finally:
        gc.set_threshold(*before)
