"""Who acts on a kickq keyspace in ``test_kickq_live.py``, and what its model remembers of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from attrs import define, field
from ferryman.compat.kickq.client import KickqClient
from ferryman.schema.live import ForeignDelivery

from .kickq_original import Process

OURS = (
    *("take", "take", "take", "take", "look", "complete", "complete", "fail", "fail", "time out", "retry", "requeue", "give up"),
    *("renew", "leave", "vanish"),
)
THEIRS = (
    *("pop", "pop", "pop", "succeed", "fail", "fail", "time out", "die", "look", "schedule", "schedule", "schedule no more"),
    "stop for ever",
)
"""What each may do next, the more often the more often it stands here."""


@define
class Consumer:
    """One of ours, and what the model says of it."""

    client: KickqClient
    leases: dict[str, int] = field(factory=dict)
    held: dict[str, tuple[ForeignDelivery, int]] = field(factory=dict)
    """By id, with when each run began."""


@define
class Paused:
    """A process of kickq that is in the middle of a transition, the jobs that it is at, and what the model says in the end."""

    process: Process[Any]
    job_ids: set[str]
    end: Callable[[Any], None]
