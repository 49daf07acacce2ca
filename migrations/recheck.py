"""Recheck: whether what an audit has found of a live keyspace is so, or was only seen because jobs moved while it was read.

A scan reads keys at different moments, so a job that a worker moves meanwhile may be seen in two places or in none. Each job
with findings is therefore looked at again, all that may speak of it at one moment, until two looks in a row see the same: what
the rules say then is true. The scan counts as a look, so a job at rest costs one more: at its record alone, where no rule that
it breaks looks at anything else. A job that never stands still keeps the findings that were there at every look. (One look is
not enough: original software may take several steps to move a job, and a look may fall between them.) Called by both engines'
audits, by Spark in each task.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from attrs import define, evolve, field

from ..schema.connection.address import Address, Kind
from ..schema.fact import Entry, Fact, FactKind, Subject
from ..schema.family import Keyspace
from ..schema.key_refs import CountCheck, KeyRef
from ..schema.rule import Finding, Severity
from ..schema.totals import Totals
from .atomic_read import AtomicReader, open_reader
from .subjects import SubjectBuilder
from .throttle import UNTHROTTLED, Throttle

MOST = 100_000
"""Jobs with findings that are looked at again in one audit; the findings of more are reported as they were first seen."""
BLOCK = 200
"""Jobs looked at in one round trip, at most."""
BLOCK_BYTES = 4 << 20
"""What these may hold, about: payloads and log lines are read again too."""
LOOKS = 5
"""How often a job is looked at that never stands still."""

Found = tuple[Subject, Sequence[Finding]]
"""A job with what the rules say of it."""

_Name = tuple[str, str, str | None, Severity]
"""What tells findings about the keyspace apart: rule, key, queue and severity."""


@define
class Recheck:
    """Passes on the findings that still hold, and counts the others. One for each audit, or part of one."""

    keyspace: Keyspace
    """As it was scanned."""
    reader: AtomicReader | None
    """None for a source at rest: everything holds."""
    most: int = MOST
    passing: int = 0
    """Findings that were gone when they were looked at again."""
    unconfirmed: int = 0
    """Findings that are reported as they were first seen: there were too many, or their keys can't be read at one moment."""

    def still_holding(self, found: Iterable[Found]) -> Iterator[Finding]:
        """The findings about jobs that hold, in the order of the jobs."""
        broken = ((subject, findings) for subject, findings in found if findings)
        if self.reader is not None:
            while block := self._block(broken):
                yield from self._confirmed(block, self.reader)
        for _, findings in broken:
            self.unconfirmed += 0 if self.reader is None else len(findings)
            yield from findings

    def still_holding_of_keyspace(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        """The findings about the keyspace that hold: what compares numbers must be so at every look at these."""
        all_of_them = list(findings)
        family, reader = self.keyspace.family, self.reader
        named = {_name(each): list(family.count_checks(each, self.keyspace)) for each in all_of_them}
        unverified = {name: numbers for name, numbers in named.items() if numbers}
        latest: dict[_Name, Finding] = {}
        for _ in range(LOOKS):
            if reader is None or not unverified:
                break
            latest = {_name(each): each for each in family.keyspace_findings(self._counted_again(unverified.values(), reader))}
            for name in unverified.keys() - latest.keys():
                del unverified[name], named[name]
        for each in all_of_them:
            if _name(each) in named:
                yield latest.get(_name(each), each)
            else:
                self.passing += 1

    def _counted_again(self, groups: Iterable[Sequence[CountCheck]], reader: AtomicReader) -> Keyspace:
        """The keyspace with the present numbers of each group in its totals; with the old ones where they can't be had."""
        totals, groups = Totals(), list(groups)
        totals.merge(self.keyspace.totals)
        for numbers, replies in zip(groups, reader.ask([[number.command for number in group] for group in groups]), strict=True):
            if replies is not None and all(isinstance(reply, int | bytes) for reply in replies):
                for number, reply in zip(numbers, replies, strict=True):
                    number.put(totals, reply)
        return evolve(self.keyspace, totals=totals)

    def _block(self, broken: Iterator[Found]) -> list[_UnverifiedJob]:
        """The next jobs to look at together: not too many, and not too heavy; none when enough have been looked at."""
        block: list[_UnverifiedJob] = []
        weight = 0
        while len(block) < BLOCK and weight < BLOCK_BYTES and self.most > 0:
            found = next(broken, None)
            if found is None:
                break
            self.most -= 1
            job = _UnverifiedJob.of(*found, self.keyspace)
            block.append(job)
            weight += job.weight
        return block

    def _confirmed(self, block: Sequence[_UnverifiedJob], reader: AtomicReader) -> Iterator[Finding]:
        unsettled = []
        for job in block:
            if job.refs:
                unsettled.append(job)
            else:
                self.unconfirmed += job.number
        for _ in range(LOOKS):
            if not unsettled:
                break
            entries_by_job = reader.read([list(job.refs) for job in unsettled])
            unsettled = self._look_again(unsettled, entries_by_job)
        for job in unsettled:
            job.keep_only_constant()
        for job in block:
            self.passing += max(0, job.number - len(job.findings))
            yield from job.findings

    def _look_again(self, jobs: Sequence[_UnverifiedJob], entries_by_job: Sequence[list[Entry] | None]) -> list[_UnverifiedJob]:
        """Takes in one look at each; returns those that must be looked at again."""
        family, prefix = self.keyspace.family, self.keyspace.prefix
        totals = Totals()
        totals.merge(self.keyspace.totals)
        seen: list[Subject | None] = []
        for job, entries in zip(jobs, entries_by_job, strict=True):
            builder = SubjectBuilder(family)
            for fact in dict.fromkeys(fact for entry in entries or () for fact in family.facts(entry, prefix)):
                family.tally(fact, totals)
                builder.add(fact)
            seen.append(next((each for each in builder.subjects() if job.is_of(each)), None))
        now = evolve(self.keyspace, totals=totals)
        again = []
        for job, entries, subject in zip(jobs, entries_by_job, seen, strict=True):
            if entries is None:
                self.unconfirmed += len(job.findings)
            elif job.update(subject, now):
                again.append(job)
        return again


@define
class _UnverifiedJob:
    """A job with findings, as it was last seen."""

    scope: str
    job_id: str
    findings: list[Finding]
    refs: dict[KeyRef, None]
    """Where to look, each once."""
    seen: Subject
    """What was read at the last look."""
    by_record: bool
    """Whether nothing but the record need be looked at, until that has changed."""
    number: int
    """How many findings there were at first."""
    weight: int
    """Bytes of what was read of the job, about."""
    constant: set[str] = field(factory=set)
    """The rules that were broken at every look."""

    @classmethod
    def of(cls, subject: Subject, findings: Sequence[Finding], keyspace: Keyspace) -> _UnverifiedJob:
        rules = {finding.rule for finding in findings}
        of_record = dict.fromkeys(KeyRef(fact.key, fact.redis_type) for fact in subject.of_kind(FactKind.RECORD))
        by_record = rules <= keyspace.family.record_only_rules and bool(of_record)
        refs = of_record if by_record else dict.fromkeys(keyspace.family.related_keys(subject, keyspace))
        weight = sum(len(value) for fact in subject.facts for value in fact.values)
        return cls(subject.scope, subject.job_id, list(findings), refs, subject, by_record, len(findings), weight, rules)

    def is_of(self, subject: Subject) -> bool:
        """Whether this is about the same job."""
        return (subject.scope, subject.job_id) == (self.scope, self.job_id)

    def update(self, subject: Subject | None, keyspace: Keyspace) -> bool:
        """Takes in a look at the job, None if nothing speaks of it. Returns whether another is needed."""
        if self.by_record:
            self.by_record = False
            if subject is not None and _content(subject.of_kind(FactKind.RECORD)) == _content(self.seen.of_kind(FactKind.RECORD)):
                return False
            self.refs = dict.fromkeys(keyspace.family.related_keys(self.seen, keyspace))
            return bool(self.refs)
        if subject is None:
            self.findings = []
            return False
        before, self.seen = self.seen, subject
        if _content(subject.facts) == _content(before.facts):
            return False  # the rules would say the same
        self.findings = list(keyspace.family.findings(subject, keyspace))
        self.constant &= {finding.rule for finding in self.findings}
        if not self.findings:
            return False
        if _placement(subject) == _placement(before):
            return False
        self.refs |= dict.fromkeys(keyspace.family.related_keys(subject, keyspace))
        return True

    def keep_only_constant(self) -> None:
        """What is reported of a job that never stood still."""
        self.findings = [finding for finding in self.findings if finding.rule in self.constant]


def _name(finding: Finding) -> _Name:
    return finding.rule, finding.key, finding.queue, finding.severity


def _content(facts: Iterable[Fact]) -> frozenset[object]:
    """All that rules look at. The order of sorted sets is not: how many members come before one is no matter of the job's own."""
    return frozenset((*_PLACEMENT(fact), fact.ttl_ms, fact.redis_type == "list" and fact.index) for fact in facts)


def _placement(subject: Subject) -> frozenset[object]:
    """In which keys a job is and with what, whatever their times to live and what comes and goes beside it in them."""
    return frozenset(map(_PLACEMENT, subject.facts))


_PLACEMENT = attrgetter("role", "key", "member", "score", "label", "values")


@contextlib.contextmanager
def open_recheck(address: Address, keyspace: Keyspace, throttle: Throttle = UNTHROTTLED, most: int = MOST) -> Iterator[Recheck]:
    """The recheck of an audit of this source. Snapshot files don't move. Raises ServerError."""
    if address.kind is Kind.RDB:
        yield Recheck(keyspace, None)
        return
    with open_reader(address, throttle) as reader:
        yield Recheck(keyspace, reader, most)
