"""Everything that can be asked of a family about a keyspace: for tests that fill one with any bytes. Nothing may raise."""

from __future__ import annotations

from ..migrations.preconditions import keys_of
from ..schema.choices import NO_CHOICES, Choices
from ..schema.errors import Unrepairable
from ..schema.fact import Subject
from ..schema.family import Command, KeyFamily, Keyspace, Target
from ..schema.rule import Finding, Severity
from ..schema.totals import Totals
from .keyspaces import KeyspaceReading

LONGEST_DETAIL = 1500
"""Characters in what a finding says."""


def interrogate(reading: KeyspaceReading) -> None:
    """Facts were made already; here all rules, repairs, jobs, incompatibilities and commands are."""
    keyspace, family = reading.keyspace, reading.keyspace.family
    reading.jobs()
    for finding in family.keyspace_findings(keyspace):
        _check(finding)
        _repair(family, finding, None, keyspace)
        list(family.count_checks(finding, keyspace))
    family.version(keyspace)
    family.consumers(keyspace)
    list(family.queues(keyspace))
    for subject in reading.subjects.values():
        for finding in family.findings(subject, keyspace):
            _check(finding)
            for choices in (NO_CHOICES, Choices(older_than=0, requeue=True)):
                for command in _repair(family, finding, subject, keyspace, choices):
                    assert keys_of(command)
        list(family.refusals(subject, keyspace))
        for ref in family.related_keys(subject, keyspace):
            assert isinstance(ref.key, bytes)
            assert all(isinstance(item, bytes) for item in ref.items)
            assert not ref.items or ref.redis_type in ("zset", "set", "hash", "list")
        job = family.read(subject, keyspace)
        if job is None:
            continue
        assert job.id == subject.job_id
        if all(finding.severity is not Severity.ERROR for finding in family.incompatibilities(job)):
            family.write(job, Target(keyspace.prefix, keyspace.now_ms))
            family.tally_written(job, Totals())
    totals = keyspace.totals
    assert type(totals).from_json(totals.to_json()) == totals


def _repair(
    family: KeyFamily, finding: Finding, subject: Subject | None, keyspace: Keyspace, choices: Choices = NO_CHOICES
) -> list[Command]:
    """The commands that mend a finding; none where the family says why not."""
    try:
        return family.repair(finding, subject, keyspace, choices)
    except Unrepairable:
        return []


def _check(finding: Finding) -> None:
    """A finding is one short printable line."""
    assert finding.detail.isprintable()
    assert len(finding.detail) < LONGEST_DETAIL
