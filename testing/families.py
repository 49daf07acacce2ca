"""The conformance suite of key families: what every family must hold, run by pytest for whoever writes one.

    from acme_queue import FAMILY
    from ferryman.testing.families import FamilyConformance

    class TestAcme(FamilyConformance):
        family = FAMILY

The family must be installed with its entry point (group ``ferryman.families``), and ``ferryman[embedded,testing]`` with it. A
server is started for the class on a free port of the loopback interface; the fixture ``keyspace_address`` can be replaced by
one that gives another empty one. What the class attributes say is all that a family may differ in.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any, ClassVar

import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ..cli.embedded import embedded_server
from ..migrations.counting import count, is_countable
from ..migrations.engine import Difference
from ..migrations.local import LocalEngine
from ..migrations.plan import Plan, requeued
from ..schema.connection.address import Address
from ..schema.connection.connect import open_client
from ..schema.errors import KeyspaceNotFound, UsageError
from ..schema.fact import Entry
from ..schema.family import KeyFamily, Target, family_names, get_family
from ..schema.job import Job, State
from ..schema.rule import Finding, Severity
from . import strategies
from .faults import StoredKeyspace, assert_found_and_mended, changed_keys
from .hostile import interrogate
from .keyspaces import dump, expire_sooner, read_keyspace, send, store

ENGINE = LocalEngine()
HOUR_MS = 3_600_000
PAIR_JOBS = 30
"""Generated jobs that go to another family and come back."""

# One server serves all examples of a property; each example empties it first.
property_of_a_keyspace = settings(
    deadline=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors, HealthCheck.too_slow],
)


def can_generate(family: KeyFamily) -> bool:
    """Whether the family makes keyspaces of its own: others are filled by their tests."""
    try:
        next(family.generate(1, 1, 0))
    except UsageError:
        return False
    return True


class FamilyConformance:
    """Subclass it with a name that begins with ``Test``, and say which ``family``."""

    family: ClassVar[KeyFamily]
    now_ms: ClassVar[int] = 1_800_000_000_000
    """The moment at which everything happens, Unix ms."""
    jobs: ClassVar[st.SearchStrategy[Job] | None] = None
    """Jobs that the family can hold; by default any that it does not name incompatible."""
    entries: ClassVar[st.SearchStrategy[Entry] | None] = None
    """Keys of any content; by default those of a generated keyspace, changed."""
    prefixes: ClassVar[Sequence[str]] = ()
    """The prefixes under which faults are injected; by default the family's own."""
    shown: ClassVar[Collection[str]] = ()
    """The rules that speak in a sound keyspace too: nothing in its keys can tell."""
    shown_of_any_job: ClassVar[Collection[str]] = ()
    """The rules that may speak of ``jobs``, whose values need not make sense together."""
    not_injectable: ClassVar[Collection[str]] = ()
    """The rules that can't be broken at one job alone."""
    not_mended: ClassVar[Collection[str]] = ()
    """The rules whose repair leaves the injected fault alone."""
    fault_jobs: ClassVar[int] = 40
    """Generated jobs among which one is found for each fault."""

    def finding_names(self, job: Job) -> Collection[str]:
        """What a finding about the job may name instead of it: a tag, a worker."""
        return ()

    def plausible(self, job: Job) -> Job:
        """A drawn job with values that make sense together, as far as rules look at them."""
        return job

    def equal_jobs(self, jobs: Collection[Job]) -> Collection[Job]:
        """Those of ``jobs``, written together, that must read back as they were: all but those that learn of others by it."""
        return jobs

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        """One test for each rule that can be broken, and for each family to go to."""
        if "injected" in metafunc.fixturenames:
            metafunc.parametrize("injected", sorted(self.family.injectable))
        if "other" in metafunc.fixturenames:
            others = [name for name in family_names() if name != self.family.name] if can_generate(self.family) else []
            metafunc.parametrize("other", others)

    @pytest.fixture(scope="class")
    @classmethod
    def keyspace_address(cls) -> Iterator[Address]:
        """A server whose databases 0 to 2 are emptied again and again."""
        with embedded_server() as address:
            yield address

    @pytest.fixture
    def stored(self, keyspace_address: Address) -> Iterator[StoredKeyspace]:
        """The keyspace under test, empty."""
        with _emptied(keyspace_address, self.family, self.now_ms) as stored:
            yield stored

    @pytest.fixture
    def carried_address(self, keyspace_address: Address) -> Address:
        """The same for what carries keyspaces from one database to another, where that shall be another server."""
        return keyspace_address

    @pytest.fixture
    def carried(self, carried_address: Address) -> Iterator[StoredKeyspace]:
        """The keyspace that is carried to another database, empty."""
        with _emptied(carried_address, self.family, self.now_ms) as stored:
            yield stored

    # What the family says of itself

    def test_its_rules_are_told_apart_and_what_it_says_of_them_is_about_its_own(self) -> None:
        """Several rules may share an id: then they are one rule for people."""
        ids = {rule.id for rule in self.family.rules}
        assert all((rule.subject is None) != (rule.keyspace is None) for rule in self.family.rules)
        assert self.family.repairable <= ids
        assert self.family.choosable <= self.family.repairable
        assert self.family.injectable == (ids - set(self.not_injectable) if self.family.injectable else set())

    def test_it_is_found_by_its_name(self) -> None:
        assert get_family(self.family.name) is self.family

    # Reading

    @settings(property_of_a_keyspace, max_examples=100)
    @given(data=st.data())
    def test_no_bytes_at_all_make_it_fail(self, data: st.DataObject) -> None:
        keys = data.draw(st.lists(self._entries(), max_size=14))
        prefix = self.family.default_prefix
        interrogate(read_keyspace(self.family, keys, prefix, self.now_ms))
        for entry in keys:
            list(self.family.prefixes(entry.key, entry.redis_type))

    def _entries(self) -> st.SearchStrategy[Entry]:
        if self.entries is not None:
            return self.entries
        return strategies.entries(self._valid_entries(), self.family.default_prefix)

    def _valid_entries(self) -> list[Entry]:
        """Keys as the family writes them, as far as plain commands tell."""
        target = Target(self.family.default_prefix, self.now_ms)
        made = (
            self.family.generate(20, 1, self.now_ms) if can_generate(self.family) else [Job("7", "mail", "mail", State.WAITING)]
        )
        types = {"SET": "string", "HSET": "hash", "ZADD": "zset", "SADD": "set", "RPUSH": "list", "LPUSH": "list"}
        found: dict[bytes, Entry] = {}
        for command in [command for job in made for command in self.family.write(job, target)]:
            words = [word if isinstance(word, bytes) else str(word).encode("utf-8", "surrogateescape") for word in command]
            match types.get(words[0].decode().upper()), words[1:]:
                case "hash", [key, *pairs]:
                    found[key] = Entry(key, "hash", dict(zip(pairs[::2], pairs[1::2], strict=False)))
                case "string" as redis_type, [key, value, *_]:
                    found[key] = Entry(key, redis_type, value)
                case ("list" | "set") as redis_type, [key, *items]:
                    found[key] = Entry(key, redis_type, items)
                case "zset", [key, *_, member]:
                    found[key] = Entry(key, "zset", [(member, 1.0)])
        return list(found.values())

    # Writing

    @property_of_a_keyspace
    @given(data=st.data())
    def test_a_job_that_it_can_hold_reads_back_as_it_was(self, stored: StoredKeyspace, data: st.DataObject) -> None:
        jobs = self._drawn(data)
        _store(stored, jobs)
        back = {(job.queue, job.id): job for job in _standing(stored)}
        assert len(back) == len(jobs)
        for job in self.equal_jobs(jobs):
            expected = self.family.expressed(job, self.now_ms)
            assert self._without_own_extra(back[job.queue, job.id]) == self._without_own_extra(expected)

    @settings(property_of_a_keyspace, max_examples=60)
    @given(data=st.data())
    def test_a_job_of_any_system_is_refused_or_reads_back_as_it_was(self, stored: StoredKeyspace, data: st.DataObject) -> None:
        job = data.draw(strategies.jobs(self.now_ms))
        if not _is_refused(self.family, job):
            _store(stored, [job])
            (back,) = _standing(stored)
            assert evolve(back, extra=_others(back, self.family)) == evolve(job, extra=_others(job, self.family))

    @property_of_a_keyspace
    @given(data=st.data())
    def test_what_it_has_written_breaks_no_rule(self, stored: StoredKeyspace, data: st.DataObject) -> None:
        if self.jobs is None:
            pytest.skip("jobs of no system in particular need not make sense; those of the generator do")
        _store(stored, [self.plausible(job) for job in self._drawn(data)])
        assert [finding for finding in stored.findings() if finding.rule not in {*self.shown, *self.shown_of_any_job}] == []

    @property_of_a_keyspace
    @given(data=st.data())
    def test_writing_again_in_any_order_changes_nothing(self, stored: StoredKeyspace, data: st.DataObject) -> None:
        jobs = [evolve(job, position=number) for number, job in enumerate(self._drawn(data))]
        _store(stored, jobs)
        once = dump(stored.client)
        store(stored.client, self.family, stored.prefix, data.draw(st.permutations(jobs)), self.now_ms)
        assert changed_keys(once, dump(stored.client)) == set()

    def _drawn(self, data: st.DataObject) -> list[Job]:
        if self.jobs is None:
            drawn = strategies.jobs(self.now_ms).filter(lambda job: not _is_refused(self.family, job))
            return data.draw(_several(drawn))
        jobs = data.draw(_several(self.jobs))
        assert not any(_is_refused(self.family, job) for job in jobs)
        return jobs

    def _without_own_extra(self, job: Job) -> Job:
        """A job without what only the family itself knows of it, where drawn jobs are none of its own."""
        return job if self.jobs is not None else evolve(job, extra=_others(job, self.family))

    # Generated keyspaces

    @pytest.fixture
    def generating(self, stored: StoredKeyspace) -> StoredKeyspace:
        """The keyspace, where the family can fill it."""
        if not can_generate(self.family):
            pytest.skip(f"the family {self.family.name} generates no jobs")
        return stored

    def test_the_same_seed_gives_the_same_jobs_and_another_one_others(self, generating: StoredKeyspace) -> None:
        first, again, other = (list(self.family.generate(50, seed, self.now_ms)) for seed in (7, 7, 8))
        assert first == again
        assert first != other
        assert len({job.id for job in self.family.generate(3000, 1, self.now_ms)}) == 3000

    def test_generated_jobs_are_written_without_loss_and_an_audit_finds_nothing(self, generating: StoredKeyspace) -> None:
        jobs = generating.generate(500, 3)
        assert [list(self.family.incompatibilities(job)) for job in jobs] == [[]] * len(jobs)
        assert {(job.queue, job.id): job for job in _standing(generating)} == {(job.queue, job.id): job for job in jobs}
        assert [finding for finding in generating.findings() if finding.rule not in self.shown] == []

    def test_its_counts_are_those_of_its_jobs(self, generating: StoredKeyspace) -> None:
        """Where its indexes tell them."""
        jobs = generating.generate(300, 5)
        counted = count(generating.address, self.now_ms)
        if counted is None:
            assert not is_countable(generating.address)
            return
        by_queue_and_state = Counter((job.queue, job.state) for job in jobs)
        found = {(status.queue, state): number for status in counted[1] for state, number in status.states.items() if number}
        assert found == by_queue_and_state

    # Faults and repairs

    @settings(property_of_a_keyspace, max_examples=5)
    @given(data=st.data(), seed=st.integers(0, 2**32), pick=st.integers(0, 1000))
    def test_an_injected_fault_is_all_that_is_found_and_is_mended(
        self, stored: StoredKeyspace, injected: str, data: st.DataObject, seed: int, pick: int
    ) -> None:
        prefix = data.draw(st.sampled_from(self.prefixes or (self.family.default_prefix,)))
        there = evolve(stored, address=evolve(stored.address, prefix=prefix))
        is_mended = injected not in self.not_mended
        assert_found_and_mended(there, injected, seed, pick, self.fault_jobs, is_mended=is_mended, names=self.finding_names)

    def test_for_every_fault_there_is_a_job_among_a_few(self) -> None:
        target = Target(self.family.default_prefix, self.now_ms)
        jobs = list(self.family.generate(300, 1, self.now_ms)) if self.family.injectable else []
        for rule in self.family.injectable:
            assert any(self.family.inject(rule, job, target) for job in jobs), rule

    def test_a_migration_of_a_broken_keyspace_is_right(self, carried: StoredKeyspace, injected: str) -> None:
        """What is carried is right, whichever rule two of its jobs break, and still when an hour has passed."""
        made = carried.generate(20, 2)
        commands = (self.family.inject(injected, job, Target(carried.prefix, self.now_ms)) for job in made)
        for _, each in zip(range(2), filter(None, commands), strict=False):
            send(carried.client, each)
        for name in dict.fromkeys(("ferryman", self.family.name)):
            target = _elsewhere(carried, 1, name)
            differences = _carry(carried, target, self.now_ms, lossy=False, pass_ms=HOUR_MS)[2]
            assert differences == [], name

    # The other families

    def test_a_keyspace_goes_to_another_family_and_comes_back(self, carried: StoredKeyspace, other: str) -> None:
        """What the target can't express is named first, rule by rule; all else is there, and comes back whole."""
        carried.generate(PAIR_JOBS, 7)
        here, there, back = self.family.name, _elsewhere(carried, 1, other), _elsewhere(carried, 2, self.family.name)
        original = {
            (job.queue, job.id): requeued(job, here, self.now_ms) if job.state is State.ACTIVE else job
            for job in _standing(carried)
        }
        named = {key: list(get_family(other).incompatibilities(job)) for key, job in original.items()}
        refused = {key for key, found in named.items() if any(each.severity is Severity.ERROR for each in found)}

        written, said, _ = _carry(carried, there, self.now_ms, lossy=False, dry_run=True)
        assert written == sum(not found for found in named.values())
        reported = {(finding.rule, finding.job_id) for finding in said}
        assert reported >= {(each.rule, job_id) for (_, job_id), found in named.items() for each in found}
        with open_client(there) as client:
            assert client.dbsize() == 0

        written, said, differences = _carry(carried, there, self.now_ms, lossy=True)
        assert written == len(original) - len(refused)
        assert {finding.job_id for finding in said} >= {job_id for _, job_id in refused}
        assert differences == []
        if not written:
            return
        came, said, _ = _carry(StoredKeyspace(there, carried.client, self.now_ms), back, self.now_ms, lossy=True)
        assert (came, [finding for finding in said if finding.severity is Severity.ERROR]) == (written, [])
        returned = {(job.queue, job.id): job for job in ENGINE.jobs(back, self.now_ms)}
        assert returned == {key: job for key, job in original.items() if key not in refused}


@contextlib.contextmanager
def _emptied(server: Address, family: KeyFamily, now_ms: int) -> Iterator[StoredKeyspace]:
    """The keyspace of a family in database 0 of a server that is emptied."""
    address = evolve(server, db=0, family=family.name, prefix=family.default_prefix)
    with open_client(address) as client:
        client.flushall()
        yield StoredKeyspace(address, client, now_ms)


def _several(jobs: st.SearchStrategy[Job]) -> st.SearchStrategy[list[Job]]:
    return st.lists(jobs, min_size=1, max_size=4, unique_by=lambda job: job.id)


def _is_refused(family: KeyFamily, job: Job) -> bool:
    return any(finding.severity is Severity.ERROR for finding in family.incompatibilities(job))


def _others(job: Job, family: KeyFamily) -> dict[str, Any]:
    """What other families know of a job."""
    return {name: value for name, value in job.extra.items() if name != family.name}


def _store(stored: StoredKeyspace, jobs: Collection[Job]) -> None:
    stored.client.flushdb()
    store(stored.client, stored.family, stored.prefix, jobs, stored.now_ms)


def _standing(stored: StoredKeyspace) -> list[Job]:
    return read_keyspace(stored.family, dump(stored.client).values(), stored.prefix, stored.now_ms).jobs()


def _elsewhere(stored: StoredKeyspace, db: int, family: str) -> Address:
    """An empty keyspace of a family in another database."""
    address = evolve(stored.address, db=db, family=family, prefix=get_family(family).default_prefix)
    with open_client(address) as client:
        client.flushdb()
    return address


def _carry(
    stored: StoredKeyspace, target: Address, now_ms: int, *, lossy: bool, dry_run: bool = False, pass_ms: int = 0
) -> tuple[int, list[Finding], list[Difference]]:
    """Migrates and, but for a dry run, verifies: how many jobs were written, what was said, and what differs.

    ``pass_ms``: so much of their times to live do keys of the source lose between the two.
    """
    findings: list[Finding] = []
    differences: list[Difference] = []
    plan = Plan.between(stored.address, target, now_ms, lossy=lossy)
    summary = ENGINE.migrate(stored.address, target, plan, findings.append, dry_run=dry_run)
    if dry_run:
        return summary.written, findings, differences
    expire_sooner(stored.client, pass_ms)
    try:
        ENGINE.verify(stored.address, target, plan, differences.append)
    except KeyspaceNotFound:
        assert summary.written == 0
    return summary.written, findings, differences
