"""Tasks for jobs of other systems: each gets a payload. Run by real workers, as ``tasks.py``, whose app they belong to."""

from __future__ import annotations

import time
from typing import Any

from .tasks import app as app
from .tasks import record, wait_until_let_go

QUEUE = "work"


@app.task(name=QUEUE)
def work(payload: dict[str, Any]) -> int:
    """Works for as long as the payload says, or until it is let go."""
    record("start", payload["name"])
    time.sleep(payload.get("seconds", 0))
    if payload.get("holds"):
        wait_until_let_go(payload["name"])
    record("end", payload["name"])
    return payload["name"]


@app.task(name="other")
def other(*args: Any, **kwargs: Any) -> None:
    """Runs at once."""
    record("other", [list(args), kwargs])


@app.task(name="nothing")
def nothing(number: int) -> None:
    """Does nothing."""
