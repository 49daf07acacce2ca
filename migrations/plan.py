"""Plan: what one migration does with every job it meets, decided before the first key is read.

``decide`` is the one place where it is decided whether a job goes over, and in which form. The local engine, the Spark
engine and verify all call it, so what verify expects is by construction what migrate meant to write. Nothing here talks
to a server, and a plan never holds an address: it travels to executors and into the journal, where no password may stand.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from attrs import evolve

from ..schema.connection.address import Address
from ..schema.errors import UsageError
from ..schema.fact import Subject
from ..schema.family import Command, KeyFamily, Keyspace, Target, get_family
from ..schema.frozen import frozen
from ..schema.job import CARRIED_FROM, Job, State, replaced, was_active
from ..schema.rule import Finding, Severity
from ..schema.totals import Totals

if TYPE_CHECKING:
    from ..schema.columnar.jobtable import CommandTable, JobTable

BOUND_TO_STATE = ("state", "scores", "state_fields")
"""What families keep in ``extra`` of the state in which they read a job, and of its places in that state."""

RULE_ACTIVE = "MIGRATE-ACTIVE"
"""The rule that ``--active refuse`` names."""

RULE_ID = "MIGRATE-ID"
"""A target in which ids are unique can't hold a message that stands in several queues: one would overwrite the other."""


class Active(StrEnum):
    """What happens to a job that a worker of the source held when it was read."""

    REQUEUE = "requeue"
    """The job waits again at the target, before the other jobs of its priority: its worker will not finish it there."""
    REFUSE = "refuse"
    """It stays at the source and is reported."""


@frozen
class Plan:
    """One migration. Equal plans do equal things, on any engine and in any run."""

    epoch: str
    """Names the migration: the same source and target always give the same epoch, so that a second run finds the first."""
    source_family: str
    source_prefix: str
    target_family: str
    target_prefix: str
    now_ms: int
    """The moment that rules compare with."""
    active: Active = Active.REQUEUE
    lossy: bool = False
    """Carry also the jobs of which the target family can't express everything."""
    accepted: tuple[str, ...] = ()
    """The rules of the source with which a job is carried though a value of it is lost: with the one that the rule assumes."""
    source_settings: tuple[tuple[str, Any], ...] = ()
    target_settings: tuple[tuple[str, Any], ...] = ()
    """What the URLs say to their families (``KeyFamily.parameters``)."""

    @classmethod
    def between(
        cls,
        source: Address,
        target: Address,
        now_ms: int,
        active: Active = Active.REQUEUE,
        lossy: bool = False,
        accepted: Iterable[str] = (),
    ) -> Plan:
        """The plan for moving one keyspace to another. Raises UsageError when both are the same, or a rule can't be accepted."""
        if _identity(source) == _identity(target):
            raise UsageError(f"source and target are the same keyspace ({source.display()}); give the target another prefix")
        accepted = tuple(sorted(set(accepted)))
        _check_accepted(source.key_family, accepted)
        digest = hashlib.sha256("\n".join((*_identity(source), "", *_identity(target))).encode("utf-8", "surrogatepass"))
        return cls(
            epoch=digest.hexdigest()[:16],
            source_family=source.family,
            source_prefix=source.prefix,
            target_family=target.family,
            target_prefix=target.prefix,
            now_ms=now_ms,
            active=active,
            lossy=lossy,
            accepted=accepted,
            source_settings=source.settings,
            target_settings=target.settings,
        )

    def keyspace(self, totals: Totals) -> Keyspace:
        """The source as rules and readers see it, once its totals are known."""
        return Keyspace(get_family(self.source_family, self.source_settings), self.source_prefix, self.now_ms, totals)

    @property
    def writer(self) -> KeyFamily:
        """The family that writes the jobs."""
        return get_family(self.target_family, self.target_settings)

    @property
    def target(self) -> Target:
        """What the writer needs to know."""
        return Target(self.target_prefix, self.now_ms)

    def commands(self, job: Job, *, fresh: bool) -> list[Command]:
        """What stores a carried job. ``fresh``: as in Target."""
        return self.writer.write(job, self._written(fresh))

    def commands_of_table(self, jobs: JobTable, written: Totals, *, fresh: bool) -> CommandTable | None:
        """What stores each of many carried jobs, which are added to ``written``; see KeyFamily.write_table."""
        return self.writer.write_table(jobs, self._written(fresh), written)

    def _written(self, fresh: bool) -> Target:
        return Target(self.target_prefix, self.now_ms, fresh=fresh)

    def choices(self) -> dict[str, Any]:
        """What the user chose, for the journal: a resumed run and verify go on with the same choices."""
        return {"now_ms": self.now_ms, "active": str(self.active), "lossy": self.lossy, "accepted": self.accepted}

    def with_choices(self, choices: Mapping[str, Any]) -> Plan:
        """This plan with what ``choices`` once gave."""
        return evolve(
            self,
            now_ms=int(choices["now_ms"]),
            active=Active(choices["active"]),
            lossy=bool(choices["lossy"]),
            accepted=tuple(choices.get("accepted", ())),  # journals of older versions have none
        )


@frozen
class Decision:
    """What becomes of one subject."""

    original: Job | None
    """The job as it stands at the source; None when indexes speak of a job that has no record."""
    job: Job | None
    """The job as it shall stand at the target; None when it stays at the source."""
    findings: tuple[Finding, ...] = ()
    """Why it stays, or what of it is lost on the way."""
    is_alone: bool = False
    """Its id is that of its keys, not one in an overflow: keys can't give two jobs of the source the same queue and id."""

    @property
    def refused(self) -> bool:
        """True for a job that exists and stays at the source."""
        return self.original is not None and self.job is None

    @property
    def refused_by(self) -> str | None:
        """The first rule that keeps the job at the source; None if none does."""
        return self.findings[0].rule if self.refused else None


def decide(subject: Subject, keyspace: Keyspace, plan: Plan) -> Decision:
    """Decides about one subject of the source. Pure: the same facts and the same plan give the same answer anywhere."""
    family = keyspace.family
    original = family.read(subject, keyspace)
    if original is None:
        # Nothing to carry, but nothing to hide either: what is left of the job shows up in the report.
        return Decision(None, None, tuple(family.findings(subject, keyspace)))
    refused = () if subject.prefiltered else family.refusals(subject, keyspace, plan.accepted)
    refusals = (*refused, *_active_refusals(original, plan))
    if refusals:
        return Decision(original, None, refusals)
    job = leaving(original, family.name, plan.now_ms)
    incompatibilities = (*_id_refusals(subject, keyspace, job, plan), *plan.writer.incompatibilities(job))
    passes = plan.lossy and all(finding.severity is not Severity.ERROR for finding in incompatibilities)
    is_alone = original.id == subject.job_id and subject.scope in ("", original.queue)
    if incompatibilities and not passes:
        return Decision(original, None, incompatibilities, is_alone)
    assumed = family.assumptions(subject, keyspace, plan.accepted) if plan.accepted and not subject.prefiltered else ()
    return Decision(original, plan.writer.expressed(job, plan.now_ms), (*incompatibilities, *assumed), is_alone)


def decide_table(jobs: JobTable, plan: Plan) -> tuple[Decision, JobTable] | None:
    """What becomes of each of many accepted jobs, said of one, and how they are written. None: ask ``decide`` for each."""
    outgoing: JobTable | None = jobs
    if jobs.common.state is State.WAITING and CARRIED_FROM in jobs.families:
        return None
    if jobs.common.state is State.ACTIVE:
        outgoing = None if plan.active is Active.REFUSE else _requeued_table(jobs, plan.source_family)
    if outgoing is None or not plan.writer.can_write_table(outgoing):
        return None
    return Decision(jobs.common, outgoing.common, is_alone=True), outgoing


def leaving(job: Job, family: str, now_ms: int) -> Job:
    """A job as it leaves a source of this family: a job that a worker holds, or held before an earlier migration, waits in front.

    Such a job has no position. Its place at the source says only where the source puts jobs in front: in a list before all
    others, elsewhere before those of its priority. The writer of the target puts it where its own software would.
    """
    if job.state is State.ACTIVE:
        return requeued(job, family, now_ms)
    return replaced(job, position=None) if job.state is State.WAITING and was_active(job) else job


def requeued(job: Job, family: str, now_ms: int) -> Job:
    """An active job as a waiting one. Its attempts stay counted; its state and lease are kept in ``extra``.

    What the family kept for the state that the job had is not true of a waiting job, and is left out. A job that its worker
    only kept until it would be due is scheduled again.
    """
    before: dict[str, Any] = {} if job.lease_expires_at is None else {"lease_expires_at": job.lease_expires_at}
    before["state"] = str(job.state)
    # First, because a family's reader puts its own last: so both sides of a comparison have the same order.
    extra = {CARRIED_FROM: before, **{name: each for name, each in job.extra.items() if name != CARRIED_FROM}}
    still_true = {name: value for name, value in job.extra.get(family, {}).items() if name not in BOUND_TO_STATE}
    if still_true:
        extra[family] = still_true
    else:
        extra.pop(family, None)
    state = State.SCHEDULED if job.due_at is not None and job.due_at > now_ms else State.WAITING
    return replaced(job, state=state, lease_expires_at=None, position=None, extra=extra)


def _requeued_table(jobs: JobTable, family: str) -> JobTable | None:
    """What ``requeued`` makes of active jobs; None where it must be asked."""
    if jobs.lasting is None or jobs.families != {family} or "due_at" in jobs.columns or jobs.common.due_at is not None:
        return None
    from ..schema.columnar.build import Datum, concat_rows, format_ints, masked  # need the extra columnar

    lasting, leases = jobs.lasting, jobs.columns.get("lease_expires_at")
    lease: list[Datum] = [] if leases is None else [b'"lease_expires_at":', format_ints(leases), b","]
    before = concat_rows(len(jobs), [b"{", *lease, f'"state":"{State.ACTIVE}"}}'.encode()])
    there = lasting.sizes > 0
    columns = {name: column for name, column in jobs.columns.items() if name not in ("lease_expires_at", "position")}
    columns["extra"] = concat_rows(
        len(jobs), [f'{{"{CARRIED_FROM}":'.encode(), before, masked(there, f',"{family}":'.encode()), lasting, b"}"]
    )
    common = evolve(jobs.common, state=State.WAITING, lease_expires_at=None, position=None)
    return evolve(jobs, common=common, columns=columns, families=frozenset({family, CARRIED_FROM}), lasting=None)


def _check_accepted(family: KeyFamily, rules: Iterable[str]) -> None:
    """Raises UsageError for a rule that assumes nothing."""
    for rule in rules:
        if rule not in family.acceptable:
            known = ", ".join(dict.fromkeys(each.id for each in family.rules if each.id in family.acceptable))
            raise UsageError(f"{family.name} has no rule {rule!r} to accept; rules that tell what to assume: {known or 'none'}")


def _active_refusals(job: Job, plan: Plan) -> Iterator[Finding]:
    if job.state is State.ACTIVE and plan.active is Active.REFUSE:
        holder = f"worker {job.worker}" if job.worker else "a worker"
        detail = f"{holder} holds the job; it stays at the source (--active refuse)"
        yield Finding(RULE_ACTIVE, Severity.WARNING, job.id, "", job.queue, detail, "let the worker finish, or requeue the job")


def _id_refusals(subject: Subject, keyspace: Keyspace, job: Job, plan: Plan) -> Iterator[Finding]:
    if plan.writer.ids_by_queue or not keyspace.family.ids_by_queue or not keyspace.family.has_twin(subject, keyspace):
        return
    detail = f"it stands in several queues under one id, and {plan.writer.name} can hold only one job of an id"
    yield Finding(RULE_ID, Severity.ERROR, job.id, "", job.queue, detail, "carry it to a family that keeps ids apart by queue")


def _identity(address: Address) -> tuple[str, ...]:
    """What makes two addresses the same keyspace. Credentials and options don't."""
    hosts = ",".join(f"{host}:{port}" for host, port in address.hosts)
    place = address.path or (f"{hosts}/{address.service}" if address.service else hosts)
    return (place, str(address.db), address.family, address.prefix)
