"""Waiting for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ferryman.compat.kue.client import KueClient
from ferryman.schema.live import ForeignDelivery

from .driver import SECONDS


def awaited(look: Callable[[], Any]) -> Any:
    """What a look finds as soon as it finds something."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if found := look():
            return found
        time.sleep(0.002)
    raise TimeoutError("it has not come")


def take(ours: KueClient, queue: str, **options: Any) -> ForeignDelivery:
    """The next job of a queue, as soon as there is one."""
    job: ForeignDelivery = awaited(lambda: ours.take(queue, **options))[0]
    return job
