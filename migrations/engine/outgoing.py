"""Outgoing: what becomes of jobs in a migration, and who writes them. Called by migrate.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...schema.family import Command
from ..plan import Decision

if TYPE_CHECKING:
    from ...schema.columnar.binary_views import BinaryViews
    from ...schema.columnar.jobtable import CommandTable


class OutgoingJob(NamedTuple):
    """What becomes of one job."""

    decision: Decision
    identity: bytes = b""
    commands: Sequence[Command] = ()
    """None for a job that stays at the source."""


class OutgoingTable(NamedTuple):
    """What becomes of each job of a table."""

    decision: Decision
    ids: BinaryViews
    commands: CommandTable
