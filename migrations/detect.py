"""Detect which systems have jobs in a database, and under which prefixes, from a sample of its keys.

Some keys of every shape are sampled. Their names nominate candidates (``KeyFamily.prefixes``); their values show which of them
each candidate knows (``KeyFamily.facts``). A key that one candidate knows does not count against another one, so that two systems
in one database, or a prefix inside another one's namespace, do not disturb each other. The numbers of jobs come from the lengths
of indexes where a family has them (``KeyFamily.count``), and are estimates from the sample otherwise. Only reads, never calls
KEYS, and stops after a number of keys or seconds. Called by ``ferryman detect``, and by every command whose URL says
``family=auto``.
"""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import islice

from attrs import define, evolve, field, frozen

from ..schema.connection.address import ANY_FAMILY, Address, Kind
from ..schema.connection.connect import open_client
from ..schema.connection.pipeline import open_pipeline
from ..schema.errors import KeyspaceNotFound, UsageError
from ..schema.fact import Entry, FactKind
from ..schema.family import KeyFamily, Keyspace, family_names, get_family
from ..schema.job import State
from ..schema.text import show
from ..schema.totals import Totals
from .globs import covering
from .key_sample import Key, KeySample, at_server, at_source
from .reading import BATCH
from .run import is_of_journal
from .source import open_source
from .subjects import SubjectBuilder

MOST_KEYS = 200_000
"""Keys whose names are looked at."""
MOST_READ = 20_000
"""Keys whose values are read, of them."""
OF_ONE_SHAPE = 400
"""Keys of one shape that are read: names that differ only in their numbers or UUIDs say the same. A shape that has more keys is
assumed to be as frequent among the keys that were not scanned."""
MOST_SECONDS = 10.0
"""Seconds after which detection ends. Collecting names may take half of them."""
MOST_CANDIDATES = 40
"""Of more prefixes the most frequent are looked at: a hostile database may suggest one with each key."""
EXAMPLES = 5


class Confidence(StrEnum):
    """How sure it is that a keyspace is what it seems to be."""

    SURE = "sure"
    """It has jobs, most of them in a state that the system knows, and it explains at least nine of ten keys that it claims."""
    LIKELY = "likely"
    """It explains at least half of the keys that it claims, or has no jobs at present."""
    DOUBTFUL = "doubtful"
    """Its key names are there, but hardly anything else fits."""


@frozen
class Detected:
    """One keyspace. Numbers are estimates where not every key was read (``exact`` is False)."""

    family: str
    prefix: str
    version: str | None
    confidence: Confidence
    explained: float
    """The share of the keys under the prefix, not known to be another keyspace's, that make sense to the system: 0 to 1."""
    keys: int
    odd_keys: int
    """Keys that the system claims by name, but can't make sense of."""
    jobs: int
    queues: tuple[str, ...]
    exact: bool

    @property
    def fits(self) -> bool:
        """Whether ``family=auto`` takes it for one."""
        return self.confidence is not Confidence.DOUBTFUL


@frozen
class Detection:
    """What a database holds."""

    keyspaces: tuple[Detected, ...]
    database_keys: int
    scanned: int
    read: int
    stopped_early: bool
    """Not all keys were looked at: the numbers speak of those that were."""
    strangers: int
    """Keys that belong to none of the keyspaces. Nothing here ever touches them."""
    examples: tuple[str, ...]
    """Some of them."""
    journal: int = 0
    """Keys in which migrations to this database have noted what they did: ferryman's own, and no stranger's."""
    hidden: int = 0
    """Keys at which the user may not look."""

    @property
    def fitting(self) -> tuple[Detected, ...]:
        """The keyspaces that are not doubtful."""
        return tuple(each for each in self.keyspaces if each.fits)


Shape = tuple[bytes, str]
"""A key's name without its numbers, and its type."""

_NUMBERS = re.compile(rb"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{8,}|[0-9]+")


def _shape(key: Key) -> Shape:
    return _NUMBERS.sub(b"#", key[0]), key[1]


def detect(address: Address, most_keys: int = MOST_KEYS, most_seconds: float = MOST_SECONDS) -> Detection:
    """Sample a database or a snapshot file, whatever family and prefix the address names. Raises ServerError, UsageError."""
    deadline = time.monotonic() + most_seconds
    names_deadline = deadline - most_seconds / 2
    if address.kind is Kind.RDB:
        with open_source(address) as source:
            return _judged(at_source(source, min(most_keys, MOST_READ), names_deadline), deadline)
    if address.kind is Kind.CLUSTER:
        raise UsageError("detection looks at one server: give the address of one node of the cluster, as ferryman://")
    with open_client(address) as client, open_pipeline(client) as pipe:
        return _judged(at_server(client, pipe, most_keys, names_deadline), deadline)


def _judged(key_sample: KeySample, deadline: float) -> Detection:
    """Judge the candidates. Reads the values of some keys."""
    unscanned = 1.0 if key_sample.finished else max(1.0, key_sample.size / max(1, len(key_sample.keys)))
    sample = _Sample.of(key_sample.keys, unscanned)
    candidates = _nominated(sample)
    finished = key_sample.finished and len(candidates) <= MOST_CANDIDATES
    chosen = sample.chosen if candidates else []
    for start in range(0, len(chosen), BATCH):
        if time.monotonic() > deadline:
            finished = False
            break
        for entry, weight in key_sample.read(chosen[start : start + BATCH]):
            sample.count(entry)
            for candidate in candidates:
                candidate.look(entry, weight)
    known = _without_shadowed(candidates)
    everything = set().union(*(candidate.known for candidate in known))
    detected = [candidate.detected(sample, everything, key_sample) for candidate in known]
    detected.sort(key=lambda each: (not each.fits, -each.jobs, each.family, each.prefix))
    strange = (
        {key: sample.weight(key) for key in sample.read_keys} if candidates else dict.fromkeys(dict(key_sample.keys), unscanned)
    )
    strange = {key: weight for key, weight in strange.items() if key not in everything}
    journal = {key: strange.pop(key) for key in list(strange) if is_of_journal(key)}
    return Detection(
        tuple(detected),
        key_sample.size,
        len(key_sample.keys),
        len(sample.read_keys),
        not finished,
        round(sum(strange.values())),
        tuple(show(key, 60) for key in sorted(strange)[:EXAMPLES]),
        round(sum(journal.values())),
        key_sample.hidden,
    )


def resolve(address: Address) -> Address:
    """The address itself, or with ``family=auto`` the one of the only keyspace in its database (under its prefix, if it has one).

    Raises UsageError that lists what is there where more than one fits, KeyspaceNotFound where none does.
    """
    if address.family != ANY_FAMILY:
        return address
    found = detect(address)
    fitting = [each for each in found.fitting if address.prefix in ("", each.prefix)]
    if not fitting:
        raise _nothing_fits(address, found)
    if len(fitting) > 1:
        named = "; ".join(f"{each.jobs} jobs at {located(address, each)}" for each in fitting[:10])
        raise UsageError(f"family=auto finds {len(fitting)} keyspaces in database {address.db}, so name one: {named}")
    return evolve(address, family=fitting[0].family, prefix=fitting[0].prefix)


def located(address: Address, keyspace: Detected) -> str:
    """The URL of a detected keyspace, for people."""
    return evolve(address, family=keyspace.family, prefix=keyspace.prefix).display()


def _nothing_fits(address: Address, found: Detection) -> KeyspaceNotFound:
    if not found.database_keys:
        return KeyspaceNotFound(f"{address.display()}: database {address.db} is empty; check the server and the database number")
    looked = f"{address.display()}: nothing in database {address.db} fits a system that ferryman knows"
    if found.keyspaces:
        named = ", ".join(located(address, each) for each in found.keyspaces)
        return KeyspaceNotFound(f"{looked} well enough; if you know better, name one: {named}")
    if not found.examples:
        return KeyspaceNotFound(f"{looked} (no key could be read; streams and modules never are); check the database number")
    return KeyspaceNotFound(f"{looked} ({found.scanned} keys, such as {', '.join(found.examples)}); check the database number")


# Candidates


def _nominated(sample: _Sample) -> list[_Candidate]:
    """Return the candidates that the names of the sampled keys suggest, the most frequent first."""
    votes: Counter[tuple[str, str]] = Counter()
    for family in map(get_family, family_names()):
        for key in sample.chosen:
            for prefix in family.prefixes(*key):
                votes[family.name, prefix] += sample.totals[_shape(key)]
    return [_Candidate(get_family(name), prefix) for (name, prefix), _ in votes.most_common(MOST_CANDIDATES + 1)]


@define
class _Sample:
    """Which keys are read, and for how many each of them speaks."""

    totals: Counter[Shape]
    chosen: list[Key]
    unscanned: float
    """How many keys the database has for each one that was scanned."""
    read: Counter[Shape] = field(factory=Counter)
    read_keys: dict[bytes, Shape] = field(factory=dict)

    @classmethod
    def of(cls, keys: Sequence[Key], unscanned: float) -> _Sample:
        """Some keys of every shape; the shapes take turns, so that rare ones have a place."""
        by_shape: defaultdict[Shape, list[Key]] = defaultdict(list)
        for key in keys:
            by_shape[_shape(key)].append(key)
        turns = ((rank, key) for those in by_shape.values() for rank, key in enumerate(those[:OF_ONE_SHAPE]))
        ordered = (key for _, key in sorted(turns, key=lambda turn: turn[0]))
        return cls(Counter({shape: len(those) for shape, those in by_shape.items()}), list(islice(ordered, MOST_READ)), unscanned)

    def count(self, entry: Entry) -> None:
        """Adds a key that was read."""
        if entry.key not in self.read_keys:  # a large key comes in parts
            shape = _shape((entry.key, entry.redis_type))
            self.read[shape] += 1
            self.read_keys[entry.key] = shape

    def weight(self, key: bytes) -> float:
        """For how many keys this one speaks."""
        shape = self.read_keys[key]
        total = self.totals[shape]
        return max(1.0, total / self.read[shape]) * (self.unscanned if total > OF_ONE_SHAPE else 1.0)


@define(eq=False)
class _Candidate:
    """A keyspace that there might be, and what it makes of the keys that were read."""

    family: KeyFamily
    prefix: str
    covers: Callable[[bytes], bool] = field(init=False)
    totals: Totals = field(factory=Totals)
    known: set[bytes] = field(factory=set)
    odd: set[bytes] = field(factory=set)
    builder: SubjectBuilder = field(init=False)
    cut: dict[bytes, float] = field(factory=dict)
    """Keys of which only a part was read, with the factor to the whole."""

    def __attrs_post_init__(self) -> None:
        self.covers = covering(self.family.globs(self.prefix))
        self.builder = SubjectBuilder(self.family)

    def look(self, entry: Entry, weight: float) -> None:
        """Takes in one key."""
        if not self.covers(entry.key):
            return
        for fact in self.family.facts(entry, self.prefix):
            self.family.tally(fact, self.totals)
            if fact.role in self.family.ambiguous_roles:
                continue
            (self.odd if fact.kind is FactKind.ODD else self.known).add(entry.key)
            if fact.kind is not FactKind.ODD:
                self.builder.add(fact)
        if weight > 1:
            self.cut[entry.key] = weight

    def detected(self, sample: _Sample, known_to_any: set[bytes], key_sample: KeySample) -> Detected:
        """Return the verdict. A key that another candidate knows is not odd."""
        keyspace = Keyspace(self.family, self.prefix, key_sample.now_ms, self.totals)
        keys = sum(sample.weight(key) for key in self.known)
        odd = sum(sample.weight(key) for key in self.odd - known_to_any)
        jobs = with_state = 0.0
        queues = set(self.family.queues(keyspace))
        subjects = list(self.builder.subjects())
        # A member of an index whose record was not read is counted by the records that were.
        are_sampled = any(subject.record is not None and sample.weight(subject.record.key) > 1 for subject in subjects)
        for subject in subjects:
            job = None if are_sampled and subject.record is None else self.family.read(subject, keyspace)
            if job is None:
                continue
            key = (subject.record or subject.facts[0]).key
            weight = sample.weight(key) * self.cut.get(key, 1.0)
            jobs += weight
            if job.state is not State.UNKNOWN:
                with_state += weight
                queues.add(job.queue)
        explained = keys / (keys + odd) if keys else 0.0
        exact = key_sample.finished and not self.cut and all(sample.weight(key) == 1 for key in self.known | self.odd)
        if not exact:
            query = self.family.count(self.prefix, key_sample.now_ms) if key_sample.count else None
            if query is not None and key_sample.count is not None:
                counted = key_sample.count(query)
                queues.update(counted)
                jobs = with_state = max(with_state, float(sum(states.total() for states in counted.values())))
            elif self.cut:
                with_state = jobs  # the states are in the parts of indexes that were not read
        return Detected(
            self.family.name,
            self.prefix,
            self.family.version(keyspace),
            _confidence(explained, jobs, with_state),
            round(explained, 4),
            round(keys),
            round(odd),
            round(jobs),
            tuple(sorted(queues)),
            exact,
        )


def _confidence(explained: float, jobs: float, with_state: float) -> Confidence:
    if jobs and with_state < jobs / 2:
        return Confidence.DOUBTFUL
    if explained >= 0.9:
        return Confidence.SURE if jobs else Confidence.LIKELY
    return Confidence.LIKELY if jobs and explained >= 0.5 else Confidence.DOUBTFUL


def _without_shadowed(candidates: Iterable[_Candidate]) -> list[_Candidate]:
    """The candidates without those of which another one knows nearly every key, and more beside: it is that other system."""
    non_empty = [candidate for candidate in candidates if candidate.known]
    return [
        candidate
        for candidate in non_empty
        if not any(
            len(other.known) > len(candidate.known) and len(other.known & candidate.known) > 0.9 * len(candidate.known)
            for other in non_empty
        )
    ]
