"""Faults and repairs on a real server: a rule is broken in a keyspace of the family's own writer, found, and mended."""

from __future__ import annotations

from collections.abc import Callable, Collection

import redis
from attrs import evolve, frozen

from ..migrations.repair import Outcome, Repair, applied
from ..schema.choices import NO_CHOICES, Choices
from ..schema.connection.address import Address
from ..schema.fact import Entry
from ..schema.family import KeyFamily, Target
from ..schema.job import Job
from ..schema.rule import Finding
from .keyspaces import dump, read_keyspace, send, store

ALL = Choices(older_than=0, requeue=True)
"""For repairs that ask which jobs are meant."""

FindingKey = tuple[str, str | None, str, str | None]
"""Rule, job, key and queue of a finding: all but what tells times and numbers."""


@frozen(eq=False)
class StoredKeyspace:
    """One keyspace on a server, in a database of its own."""

    address: Address
    client: redis.Redis
    now_ms: int
    """The moment of all that is written, audited and repaired, Unix ms."""

    @property
    def family(self) -> KeyFamily:
        return self.address.key_family

    @property
    def prefix(self) -> str:
        return self.address.prefix

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
        return read_keyspace(self.family, dump(self.client).values(), self.prefix, self.now_ms).findings()

    def finding_keys(self) -> set[FindingKey]:
        """The same, without what tells times and numbers."""
        return {(each.rule, each.job_id, each.key, each.queue) for each in self.findings()}

    def repair(self, *rules: str, choices: Choices = NO_CHOICES) -> list[Repair]:
        """Mends by the way of ``ferryman audit --repair … --apply``."""
        return applied(self.address, rules, self.now_ms, choices=choices)


def changed_keys(before: dict[bytes, Entry], after: dict[bytes, Entry]) -> set[bytes]:
    """The keys that differ in more than how long they have left to live."""
    return {key for key in before.keys() | after.keys() if _at_rest(before.get(key)) != _at_rest(after.get(key))}


def _at_rest(entry: Entry | None) -> Entry | None:
    return None if entry is None else evolve(entry, ttl_ms=None if entry.ttl_ms is None else 0)


def named_words(repairs: Collection[Repair]) -> set[bytes]:
    """Everything that the commands of repairs name, keys among it."""
    return {_to_bytes(word) for each in repairs for command in each.commands for word in command[1:]}


def _to_bytes(word: bytes | str | float) -> bytes:
    return word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape")


def assert_found_and_mended(
    stored: StoredKeyspace,
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
    may name instead of it: a tag, a worker. Nothing is checked where the rule can be broken at none of these jobs.
    """
    made = stored.generate(jobs, seed)
    findings_before = stored.finding_keys()
    # From a drawn place on, the first job at which this rule can be broken.
    job = next((job for job in (*made[pick % jobs :], *made[: pick % jobs]) if stored.inject(rule, job)), None)
    if job is None:
        return
    broken = stored.finding_keys()
    assert {found[0] for found in broken - findings_before} == {rule}
    about = (job.id, None, *names(job))
    assert any(found[1] in about or found[3] == job.queue for found in broken - findings_before)
    family = stored.family
    if rule not in family.repairable or not is_mended:
        return
    before = dump(stored.client)
    repairs = stored.repair(rule, choices=ALL if rule in family.choosable else NO_CHOICES)
    own = [each for each in repairs if each.finding.job_id in about or each.finding.queue == job.queue]
    assert own
    assert {each.outcome for each in own} == {Outcome.MENDED}
    assert stored.finding_keys() - findings_before == set()
    assert changed_keys(before, dump(stored.client)) <= named_words(repairs)
