"""KeyFamily: the contract of one system's keys, and the registry of all installed families.

A family never opens a connection. It names keys, turns raw values into facts, facts into jobs and findings, and jobs into
commands; engines do the reading and sending. Adding a system means adding one folder with one instance of this class and
one entry point in the group ``ferryman.families``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import evolve, field, frozen

from .choices import NO_CHOICES, Choices
from .day import DaysQuery
from .errors import UnknownFamily, UsageError
from .fact import Entry, Fact, Subject
from .job import Counted, Job, State
from .job_index import JobIndex
from .key_refs import CountCheck, KeyRef
from .keys import hash_tag
from .prefilter import Prefilter
from .rule import Finding, Rule, check_job
from .sampling import UNSHARDED, Shard
from .state_index import StateIndexQuery
from .steering import Steering
from .text import to_bytes
from .totals import Totals
from .waits import WaitsQuery
from .workers import WorkersQuery

if TYPE_CHECKING:
    from .columnar.batch_prefilter import BatchPrefilter
    from .columnar.jobtable import CommandTable, JobTable
    from .live import ForeignFamily

Command = tuple[bytes | str | int | float, ...]
"""One Redis command, ready to be packed."""

CountQuery = Generator[Sequence[Command], Sequence[Any], Mapping[str, Counter[State]]]
"""A question that takes several rounds: yields commands, is sent their replies, returns the jobs of each queue by state."""


@frozen
class Target:
    """Where jobs are written: what a writer may know about the keyspace it writes to."""

    prefix: str
    now_ms: int
    generated: bool = False
    """True where only sound jobs of the family's own generator are written, each once, into a keyspace without any.

    Then nothing older has to be taken away, and nothing overflows: writers don't look for either.
    """
    fresh: bool = False
    """True where nothing of a job stands but what the same commands have left: writers need not take anything away."""


@frozen
class Keyspace:
    """What readers and rules may know beside one subject."""

    family: KeyFamily
    prefix: str
    now_ms: int
    """The moment to compare with: the server's clock, or the time of the snapshot."""
    totals: Totals = field(factory=Totals, repr=False)


class KeyFamily(ABC):
    """Everything known about one system's Redis keys. Implementations are stateless; every method is pure."""

    name: ClassVar[str]
    """The word in URLs: ``family=<name>``."""
    title: ClassVar[str]
    """One line for people."""
    default_prefix: ClassVar[str]
    parameters: ClassVar[Mapping[str, Callable[[str], Any]]] = {}
    """The URL parameters that the family alone knows, with what parses them: it raises ValueError that says what must be."""
    rules: ClassVar[tuple[Rule[Keyspace], ...]]
    keeps_extra: ClassVar[bool] = False
    """True for a family that stores all of ``Job.extra``; others store at most what stands there under their own name."""
    repairable: ClassVar[frozenset[str]] = frozenset()
    """The ids of the rules that ``repair`` can mend."""
    choosable: ClassVar[frozenset[str]] = frozenset()
    """The ids of the rules whose repair asks what the user chooses: which jobs of workers wait again."""
    injectable: ClassVar[frozenset[str]] = frozenset()
    """The ids of the rules that ``inject`` can break."""
    reference_roles: ClassVar[frozenset[str]] = frozenset()
    """The roles of facts by which other jobs refer to this one: a job that has such a fact is asked for its ``back_references``.

    Empty for a family whose jobs need not know of each other's state.
    """
    ids_by_queue: ClassVar[bool] = False
    """True for a family in which jobs of two queues may have the same id."""
    countdowns: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Where numbers stand in what the family keeps in ``extra`` that get smaller by themselves: times left to live, in ms."""
    ambiguous_roles: ClassVar[frozenset[str]] = frozenset()
    """The roles of facts about keys that are somebody else's unless the whole keyspace tells otherwise."""
    left_behind_roles: ClassVar[frozenset[str]] = frozenset()
    """The roles of keys that hold what belongs to no job and is not made anew at a target either: statistics, settings."""
    scopes_by_queue: ClassVar[bool] = False
    """Whether the scope of a job's facts is its queue, whose name its keys have (``Fact.scope``); else there is but one scope."""
    finds_by_id: ClassVar[bool] = True
    """False for a family in which an id tells no key, so that only who reads all jobs finds the one."""
    names_records: ClassVar[bool] = True
    """False for a family in which a name doesn't tell whether a hash is a job's record: any hash may be one, or none is."""

    def configured(self, settings: Mapping[str, Any]) -> KeyFamily:
        """The family as these values of its ``parameters`` have it."""
        return self

    # Recognising

    def prefixes(self, key: bytes, redis_type: str) -> Iterable[str]:
        """Every prefix under which this key could be one of the family's own, as its name and type tell. Never raises.

        A hint for detection, which then reads some keys and asks ``facts``. Only keys that a system can't do without need
        to be recognised; nothing for a name that anybody's key might have.
        """
        return ()

    def version(self, keyspace: Keyspace) -> str | None:
        """The versions of the original software that can have written this keyspace, for people; None where keys don't tell."""
        return None

    # Reading

    @abstractmethod
    def globs(self, prefix: str) -> tuple[str, ...]:
        """SCAN MATCH patterns that together cover every key of the keyspace, and perhaps others, which ``facts`` leaves alone."""

    @abstractmethod
    def facts(self, entry: Entry, prefix: str) -> Iterator[Fact]:
        """What one key states: nothing for a key of somebody else's, an ODD fact for one of ours that makes no sense.

        Never raises for any bytes in key or value.
        """

    def job_index(self, prefix: str) -> JobIndex | None:
        """Where all jobs stand, as long as the keyspace is sound; None for a family that keeps no such key."""
        return None

    def prefilter(self, prefix: str, now_ms: int, *, for_transfer: bool = False) -> Prefilter | None:
        """What spares an audit the sound jobs of this keyspace; None where the rules look at every job.

        ``for_transfer``: who only carries jobs asks, so that it may also accept jobs in which no rule that refuses finds
        anything.
        """
        return None

    def batch_prefilter(self, prefix: str, now_ms: int, *, for_transfer: bool = False) -> BatchPrefilter | None:
        """The same for thousands of jobs at once, if the family has it. Needs the extra ``columnar``."""
        return None

    def is_referenced(self, facts: Iterable[Fact]) -> bool:
        """Whether other jobs refer to the job of which these are all facts: no other need be asked for ``back_references``."""
        return bool(self.reference_roles) and any(fact.role in self.reference_roles for fact in facts)

    def back_references(self, subject: Subject) -> Iterator[Fact]:
        """What this job tells other jobs that refer to it: facts about them, to be joined with their own.

        One key can only refer (a duplicate names its original); the answer takes all that is known about the other job. Only
        jobs that have facts of their own are answered. ``subject`` has no back references yet; without them a job is read as
        if it referred to none. Never raises.
        """
        return iter(())

    @abstractmethod
    def tally(self, fact: Fact, totals: Totals) -> None:
        """Adds one fact (about a job or the keyspace) to the totals that readers and rules will see."""

    @abstractmethod
    def read(self, subject: Subject, keyspace: Keyspace) -> Job | None:
        """The job that the facts describe; None when there is no record of it. Never raises for any content."""

    def describe(self, subject: Subject, keyspace: Keyspace) -> Job | None:
        """The job that ``read`` gives, but that it may lack ``extra``, ``position`` and ``rank``: for half of what that costs.

        For whoever counts jobs or shows them, and neither copies nor orders them.
        """
        return self.read(subject, keyspace)

    def counted(self, subject: Subject, keyspace: Keyspace) -> Job | Counted | None:
        """What a census counts of the job that ``read`` gives: for whoever needs no more of it."""
        return self.describe(subject, keyspace)

    def accepts(self, subject: Subject, keyspace: Keyspace) -> bool:
        """Whether a glance is enough to tell that no rule can find anything in this job, as it is in nearly all. Never raises.

        False decides nothing: the rules look, one after the other, which takes several times as long.
        """
        return False

    def related_keys(self, subject: Subject, keyspace: Keyspace) -> Iterable[KeyRef]:
        """Every key that may speak of this job now, whether it did when ``subject`` was read or not. Never raises.

        An auditor of a live keyspace reads them again at one moment. Nothing for a subject that can't be read so: one that is no
        job, or that speaks of too many others. What is named may depend on what is known: a worker, say, that the record tells;
        whoever asks then asks once more when more is known.
        """
        return ()

    def count_checks(self, finding: Finding, keyspace: Keyspace) -> Iterable[CountCheck]:
        """The numbers on which a finding about the keyspace rests, where moving jobs change them. All in one slot."""
        return ()

    def other_prefixes(self, totals: Totals) -> Collection[str]:
        """What follows the prefix in those of the keyspaces that hold everything that was read.

        Nothing if the given prefix has keys of its own.
        For a family whose prefix may be empty: without the right one, its keys cover those of other prefixes.
        """
        return ()

    def queues(self, keyspace: Keyspace) -> Iterable[str]:
        """The queues that the keyspace itself lists, those without a job too. Nothing where a family has no such list."""
        return keyspace.totals.names.get("queues", ())

    def queue_list(self, prefix: str) -> Command | None:
        """The command whose reply lists the names of the queues; None where the family has no such key."""
        return None

    def consumers(self, keyspace: Keyspace) -> Mapping[str, int] | None:
        """How many live consumers each queue has; None where the family's keys don't tell."""
        return None

    def paused(self, keyspace: Keyspace) -> Collection[str] | None:
        """The queues from which nothing is taken until they are resumed; None where the family knows no pauses."""
        return None

    def count(self, prefix: str, now_ms: int) -> CountQuery | None:
        """How many jobs each queue has in each state, asked of indexes whose lengths tell; None where only the jobs tell.

        A scheduled job whose time has come waits, whether or not a worker has looked since.

        Yields lists of commands that read one key each and take no time, and is sent their replies, None for one about a key
        that has a wrong type. Returns the states by queue. For looks every few seconds, so never more than a few rounds.
        """
        return None

    def waits(self, prefix: str, queues: Iterable[str]) -> WaitsQuery | None:
        """How many jobs of these queues wait with each priority, and since when the first does; None where only the jobs tell.

        Nothing of a queue with more than MOST_PRIORITIES. Yields commands as ``count`` does.
        """
        return None

    def days(self, prefix: str, queue: str, starts_ms: Sequence[int]) -> DaysQuery | None:
        """What the system itself has kept of what a queue did on the days that begin then, UTC; None where it keeps nothing.

        Yields commands as ``count`` does. A day of which nothing is kept is one on which nothing happened.
        """
        return None

    def state_indexes(self, prefix: str, queue: str, state: State) -> StateIndexQuery | None:
        """The keys in which the queue's jobs of this state stand; none of a state that the family does not know.

        None where the family has no such keys: only who reads all jobs finds these. Yields commands as ``count`` does.
        """
        return None

    def workers(self, prefix: str, first: int, limit: int) -> WorkersQuery | None:
        """Up to ``limit`` of the workers after the first ones, and what they hold; None where no key lists workers.

        Yields commands as ``count`` does.
        """
        return None

    # Writing

    @abstractmethod
    def incompatibilities(self, job: Job) -> Iterator[Finding]:
        """What of this job the family can't express. Empty for every job that it can carry."""

    def expressed(self, job: Job, now_ms: int) -> Job:
        """The job as the family holds it: what its reader will give of it once it is written, where that differs.

        Only what ``incompatibilities`` names is lost, or what the family tells in other words; the same job for nearly all.
        """
        return job

    @abstractmethod
    def write(self, job: Job, target: Target) -> list[Command]:
        """The commands that store the job. Idempotent: sending them twice gives the same keyspace.

        Commands that are not (wake-up tokens, counters) belong to ``finish``. All keys of one job share one cluster slot
        where the family allows it.
        """

    writes_tables: ClassVar[bool] = False
    """Whether ``write_table`` gives something for any jobs."""

    def can_write_table(self, jobs: JobTable) -> bool:
        """Whether no job of these has ``incompatibilities``; False also where that is not known of all at once."""
        return False

    def write_table(self, jobs: JobTable, target: Target, written: Totals) -> CommandTable | None:
        """What ``write`` gives for each of these jobs, with what ``tally_written`` adds for all. Called if ``can_write_table``.

        None, and nothing added, where each job must be written by itself.
        """
        return None

    def live(self, prefix: str, side_prefix: str) -> ForeignFamily | None:
        """The transitions of a keyspace in use, for a broker beside the system itself; None where there are none.

        Raises UsageError for a prefix that the system can't have.
        """
        return None

    def steering(self, prefix: str) -> Steering | None:
        """What an operator can do to the keyspace's queues and jobs; None where there is nothing."""
        return None

    def has_hash_tags(self, prefix: str) -> bool:
        """Whether all keys of a job share a hash tag, and so a slot of a cluster: here, where the prefix holds one for all."""
        name = to_bytes(prefix)
        return hash_tag(name) != name

    @abstractmethod
    def finish(self, target: Target, written: Totals) -> list[Command]:
        """The commands to send once, after every job is stored: registries, counters, wake-up tokens. Idempotent as well.

        A script (EVAL) that replies 1 has done a part of its work, so that the server does not stand still: it is to be sent
        again until it replies something else (``migrations/partition_writer.py``).

        ``written`` are the totals of the written jobs as ``tally_written`` made them.
        """

    @staticmethod
    def tally_written(job: Job, totals: Totals) -> None:
        """Adds one written job to the totals that ``finish`` needs."""
        totals.count("jobs", job.queue)
        totals.count(f"jobs:{job.state}", job.queue)

    # Mending, and material for tests and demos

    def repair(
        self, finding: Finding, subject: Subject | None, keyspace: Keyspace, choices: Choices = NO_CHOICES
    ) -> list[Command]:
        """The commands after which the finding is gone and nothing else has changed; none where that can't be done safely.

        Raises Unrepairable where there is more to say about why not. ``choices``: what keys can't tell and the user decides.
        ``subject``: all that was read about the job of the finding; None for a finding about the keyspace. Whoever sends the
        commands makes sure that nothing of it has changed meanwhile, nor anything that stands where they write, nor the
        answers to reading commands that stand among them (``migrations/preconditions.py``, which lists the commands that may be
        used).
        """
        return []

    def generate(self, jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[Job]:
        """``jobs`` realistic, sound jobs as they stand at ``now_ms``, the same ones for the same arguments.

        ``shard``: only those of this share, for processes that share the work. Raises UsageError for a family that has none.
        """
        raise UsageError(f"the family {self.name} has no generated keyspaces")

    def generate_records(self, jobs: int, seed: int, now_ms: int, shard: Shard = UNSHARDED) -> Iterator[Job]:
        """The jobs of ``generate`` for a ``generated`` target: they need not say more of themselves than ``write`` asks for."""
        return self.generate(jobs, seed, now_ms, shard)

    def inject(self, rule: str, job: Job, target: Target) -> list[Command]:
        """The commands that break one rule of ``injectable`` at this sound, written job, and no other rule.

        Empty for a job at which this rule can't be broken (a scheduled job for a rule about active ones).
        """
        return []

    def has_twin(self, subject: Subject, keyspace: Keyspace) -> bool:
        """Whether another queue has, or had, a job of this id: the same message, sent to both."""
        return False

    # What both engines run on the results of the above

    def findings(self, subject: Subject, keyspace: Keyspace) -> Sequence[Finding]:
        """All rules on one subject."""
        return () if self.accepts(subject, keyspace) else self.rule_findings(subject, keyspace)

    def rule_findings(self, subject: Subject, keyspace: Keyspace) -> Sequence[Finding]:
        """The same, without a glance before."""
        return check_job(self._about_jobs, subject, keyspace)

    def keyspace_findings(self, keyspace: Keyspace) -> Iterator[Finding]:
        """All rules on the totals."""
        for rule in self.rules:
            yield from rule.check_totals(keyspace)

    def refusals(self, subject: Subject, keyspace: Keyspace, accepted: Collection[str] = ()) -> Sequence[Finding]:
        """The findings that keep this job from being carried to another keyspace.

        ``accepted``: the ids of rules with which it is carried all the same, as far as they say what they assume.
        """
        if self.accepts(subject, keyspace):
            return ()
        rules = self._refusing if not accepted else [rule for rule in self._refusing if not _is_accepted(rule, accepted)]
        return check_job(rules, subject, keyspace)

    def assumptions(self, subject: Subject, keyspace: Keyspace, accepted: Collection[str]) -> Sequence[Finding]:
        """The findings of accepted rules, each of which tells a value of this job that does not stand in the keys."""
        if self.accepts(subject, keyspace):
            return ()
        rules = [evolve(rule, refuses=False) for rule in self._refusing if _is_accepted(rule, accepted)]
        return check_job(rules, subject, keyspace)

    @cached_property
    def acceptable(self) -> frozenset[str]:
        """The ids of the rules that a user may accept."""
        return frozenset(rule.id for rule in self._refusing if rule.assumes is not None)

    @cached_property
    def record_only_rules(self) -> frozenset[str]:
        """The rules (by id) that look at nothing but a job's record."""
        others = {rule.id for rule in self.rules if not rule.record_only}
        return frozenset(rule.id for rule in self.rules) - others

    @cached_property
    def _about_jobs(self) -> tuple[Rule[Keyspace], ...]:
        return tuple(rule for rule in self.rules if rule.subject is not None)

    @cached_property
    def _refusing(self) -> tuple[Rule[Keyspace], ...]:
        return tuple(rule for rule in self._about_jobs if rule.refuses)


def _is_accepted(rule: Rule[Keyspace], accepted: Collection[str]) -> bool:
    return rule.assumes is not None and rule.id in accepted


GROUP = "ferryman.families"


def family_names() -> list[str]:
    """The names that ``family=`` accepts, sorted, without loading any family."""
    return sorted(entry.name for entry in entry_points(group=GROUP))


@cache
def get_family(name: str, settings: tuple[tuple[str, Any], ...] = ()) -> KeyFamily:
    """The family of this name, with its own parameters (``Address.settings``). Raises UnknownFamily naming the installed ones."""
    for entry in entry_points(group=GROUP, name=name):
        family: KeyFamily = entry.load()
        return family.configured(dict(settings)) if settings else family
    raise UnknownFamily(f"unknown family {name!r}; installed are: {', '.join(family_names())}")
