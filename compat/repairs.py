"""Repairs: what each family's ``repairs.py`` starts from: a finding about one job, and all that is known of the job."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from ..schema.choices import NO_CHOICES, Choices
from ..schema.family import Keyspace
from ..schema.rule import Finding
from ..schema.text import to_bytes


class _JobView(Protocol):
    @property
    def job_id(self) -> str: ...


V = TypeVar("V", bound=_JobView)


class RepairContext(Generic[V]):
    """A finding about a job, as the family's view shows it. Families add the keys and the commands that repairs share."""

    def __init__(self, finding: Finding, view: V, keyspace: Keyspace, choices: Choices = NO_CHOICES) -> None:
        self.view = view
        self.keyspace = keyspace
        self.choices = choices
        self.id = to_bytes(view.job_id)
        self.finding_key = to_bytes(finding.key)
        """The key that the finding names."""
        self.now_ms = keyspace.now_ms
