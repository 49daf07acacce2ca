"""Waiting for what another process does, and hearing what it tells."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import redis
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


END = b'{"id":0,"event":"end","args":["end"]}'
"""An event of no job."""


def heard(client: redis.Redis, listener: Any, are_all: Callable[[list[bytes]], bool] = lambda _: True) -> list[bytes]:
    """All events since the last time, as they were sent; with ``are_all``, once these are all that are to come.

    What kue tells of a step it sends after it has written it, so that keys can be seen before their event.
    """
    found: list[bytes] = []

    def has_heard() -> bool:
        client.publish("q:events", END)
        while (message := listener.get_message(timeout=SECONDS)) and message["data"] != END:
            if message["type"] == "message":
                found.append(message["data"])
        return are_all(found)

    awaited(has_heard)
    return found
