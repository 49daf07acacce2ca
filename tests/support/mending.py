"""Faults and repairs as every family's tests see them: on a real server, in a keyspace that the family's own writer has made."""

from __future__ import annotations

from collections.abc import Callable, Collection

import redis
from attrs import evolve, frozen
from ferryman.migrations.repair import Outcome, Repair, applied
from ferryman.schema.choices import NO_CHOICES, Choices
from ferryman.schema.connection.address import Address
from ferryman.schema.fact import Entry
from ferryman.schema.family import Command, KeyFamily, Target
from ferryman.schema.job import Job
from ferryman.schema.rule import Finding

from .captures import dump, survey
from .keyspace import store
from .servers import Server

NOW = 1_800_000_000_000

ALL = Choices(older_than=0, requeue=True)

Said = set[tuple[str, str | None, str, str | None]]
"""Rule, job, key and queue of findings."""


@frozen(eq=False)
class Ward:
    """One keyspace on a server, in database 0."""

    server: Server
    client: redis.Redis
    family: KeyFamily
    prefix: str
    now_ms: int = NOW

    def generate(self, jobs: int, seed: int) -> list[Job]:
        """Fills the database, emptied first, with a sound keyspace."""
        self.client.flushdb()
        made = list(self.family.generate(jobs, seed, self.now_ms))
        store(self.client, self.family, self.prefix, made, self.now_ms)
        return made

    def inject(self, rule: str, job: Job) -> bool:
        """Breaks a rule at a job; False where that can't be done."""
        commands = self.family.inject(rule, job, Target(self.prefix, self.now_ms))
        send(self.client, commands)
        return bool(commands)

    def findings(self) -> list[Finding]:
        """What an audit says now."""
        return survey(self.family, dump(self.client).values(), self.prefix, self.now_ms).findings()

    def said(self) -> Said:
        """The same, without what tells times and numbers."""
        return {(each.rule, each.job_id, each.key, each.queue) for each in self.findings()}

    def repair(self, *rules: str, choices: Choices = NO_CHOICES) -> list[Repair]:
        """Mends by the way of ``ferryman audit --repair … --apply``."""
        address = Address.parse(self.server.url())
        there = Address(address.kind, address.hosts, family=self.family.name, prefix=self.prefix)
        return applied(there, rules, self.now_ms, choices=choices)


def send(client: redis.Redis, commands: list[Command]) -> None:
    """Plain commands, one after the other."""
    for command in commands:
        client.execute_command(*command)


def changed(before: dict[bytes, Entry], after: dict[bytes, Entry]) -> set[bytes]:
    """The keys that differ in more than how long they have left to live."""
    return {key for key in before.keys() | after.keys() if _at_rest(before.get(key)) != _at_rest(after.get(key))}


def _at_rest(entry: Entry | None) -> Entry | None:
    return None if entry is None else evolve(entry, ttl_ms=None if entry.ttl_ms is None else 0)


def assert_fault_is_found_and_mended(
    ward: Ward,
    rule: str,
    seed: int,
    pick: int,
    jobs: int = 25,
    *,
    is_mended: bool = True,
    names: Callable[[Job], Collection[str]] = lambda _job: (),
) -> None:
    """Breaks the rule at one of the generated jobs, looks for exactly that, and mends it if commands can.

    ``is_mended``: whether commands mend this fault, where the rule alone does not tell. ``names``: what a finding about the job
    may name instead of it: a tag, a worker.
    """
    made = ward.generate(jobs, seed)
    sound = ward.said()
    # From a drawn place on, the first job at which this rule can be broken.
    job = next((job for job in (*made[pick % jobs :], *made[: pick % jobs]) if ward.inject(rule, job)), None)
    if job is None:
        return
    damaged = ward.said()
    assert {said[0] for said in damaged - sound} == {rule}
    about = (job.id, None, *names(job))
    assert any(said[1] in about or said[3] == job.queue for said in damaged - sound)
    if rule not in ward.family.repairable or not is_mended:
        return
    before = dump(ward.client)
    # Whatever asks for a choice, here of all jobs.
    mended = ward.repair(rule, choices=ALL if rule in ward.family.choosable else NO_CHOICES)
    repairs = [each for each in mended if each.finding.job_id in about or each.finding.queue == job.queue]
    assert repairs
    assert {each.outcome for each in repairs} == {Outcome.MENDED}
    assert ward.said() - sound == set()
    assert changed(before, dump(ward.client)) <= named(mended)


def named(repairs: list[Repair]) -> set[bytes]:
    """Everything that the commands name, keys among it."""
    return {_bytes(word) for each in repairs for command in each.commands for word in command[1:]}


def _bytes(word: bytes | str | float) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape")
