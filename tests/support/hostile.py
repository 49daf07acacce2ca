"""Everything that can be asked of a family about a keyspace, for tests that fill it with any bytes."""

from __future__ import annotations

from ferryman.migrations.preconditions import keys_of
from ferryman.schema.choices import NO_CHOICES, Choices
from ferryman.schema.errors import Unmendable
from ferryman.schema.fact import Subject
from ferryman.schema.family import Command, KeyFamily, Target
from ferryman.schema.rule import Finding, Keyspace, Severity
from ferryman.schema.totals import Totals

from .captures import Survey

LONGEST_DETAIL = 1500
"""Characters in what a finding says."""


def interrogate(seen: Survey) -> None:
    """Facts were made already; here all rules, repairs, jobs, incompatibilities and commands are. Nothing may raise."""
    keyspace, family = seen.keyspace, seen.keyspace.family
    seen.jobs()
    for finding in family.keyspace_findings(keyspace):
        check(finding)
        repaired(family, finding, None, keyspace)
        list(family.count_checks(finding, keyspace))
    family.version(keyspace)
    family.consumers(keyspace)
    list(family.queues(keyspace))
    for subject in seen.subjects.values():
        for finding in family.findings(subject, keyspace):
            check(finding)
            for choices in (NO_CHOICES, Choices(older_than=0, requeue=True)):
                for command in repaired(family, finding, subject, keyspace, choices):
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


def repaired(
    family: KeyFamily, finding: Finding, subject: Subject | None, keyspace: Keyspace, choices: Choices = NO_CHOICES
) -> list[Command]:
    """The commands that mend a finding; none where the family says why not."""
    try:
        return family.repair(finding, subject, keyspace, choices)
    except Unmendable:
        return []


def check(finding: Finding) -> None:
    """A finding is one short printable line."""
    assert finding.detail.isprintable()
    assert len(finding.detail) < LONGEST_DETAIL
