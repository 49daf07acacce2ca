"""Detection: which systems live in a database, under which prefixes, told from a bounded look at its keys.

Key names nominate candidates (``KeyFamily.prefixes``); then some keys of every shape are read, and each candidate says which of
them it knows (``KeyFamily.facts``). Keys that a candidate finds odd don't count against it where another one knows them, so
a prefix inside another one's namespace, or two systems side by side, don't disturb each other. Only reads, never calls KEYS, and
stops after so many keys or seconds. Called by ``ferryman detect``, and by every command whose URL says ``family=auto``.
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
"""Keys of one shape that are read: names that differ only in their numbers say the same."""
MOST_SECONDS = 10.0
"""After so long the look is over."""
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

_NUMBERS = re.compile(rb"[0-9a-fA-F]{8,}|[0-9]+")


def _shape(key: Key) -> Shape:
    return _NUMBERS.sub(b"#", key[0]), key[1]


def detect(address: Address, most_keys: int = MOST_KEYS, most_seconds: float = MOST_SECONDS) -> Detection:
    """Looks at a database or a snapshot file, whatever family and prefix the address names. Raises ServerError, UsageError."""
    deadline = time.monotonic() + most_seconds
    if address.kind is Kind.RDB:
        with open_source(address) as source:
            return _judged(at_source(source, min(most_keys, MOST_READ), deadline), deadline)
    if address.kind is Kind.CLUSTER:
        raise UsageError("detection looks at one server: give the address of one node of the cluster, as ferryman://")
    with open_client(address) as client, open_pipeline(client) as pipe:
        return _judged(at_server(client, pipe, most_keys, deadline), deadline)


def _judged(key_sample: KeySample, deadline: float) -> Detection:
    """What the keys speak for. Reads the values of some."""
    candidates = _nominated(key_sample.keys)
    sample = _Sample.of(key_sample.keys)
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
    detected = [candidate.detected(sample, everything, key_sample.now_ms) for candidate in known]
    detected.sort(key=lambda each: (not each.fits, -each.jobs, each.family, each.prefix))
    strange = {key: sample.weight(key) for key in sample.read_keys} if candidates else dict.fromkeys(dict(key_sample.keys), 1.0)
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


def _nominated(keys: Iterable[Key]) -> list[_Candidate]:
    """The candidates that key names suggest, the most frequent first."""
    families = [get_family(name) for name in family_names()]
    votes = Counter((family.name, prefix) for key in keys for family in families for prefix in family.prefixes(*key))
    return [_Candidate(get_family(name), prefix) for (name, prefix), _ in votes.most_common(MOST_CANDIDATES + 1)]


@define
class _Sample:
    """Which keys are read, and for how many each of them speaks."""

    totals: Counter[Shape]
    chosen: list[Key]
    read: Counter[Shape] = field(factory=Counter)
    read_keys: dict[bytes, Shape] = field(factory=dict)

    @classmethod
    def of(cls, keys: Sequence[Key]) -> _Sample:
        """Some keys of every shape; the shapes take turns, so that rare ones have a place."""
        by_shape: defaultdict[Shape, list[Key]] = defaultdict(list)
        for key in keys:
            by_shape[_shape(key)].append(key)
        turns = ((rank, key) for those in by_shape.values() for rank, key in enumerate(those[:OF_ONE_SHAPE]))
        ordered = (key for _, key in sorted(turns, key=lambda turn: turn[0]))
        return cls(Counter({shape: len(those) for shape, those in by_shape.items()}), list(islice(ordered, MOST_READ)))

    def count(self, entry: Entry) -> None:
        """Adds a key that was read."""
        if entry.key not in self.read_keys:  # a large key comes in parts
            shape = _shape((entry.key, entry.redis_type))
            self.read[shape] += 1
            self.read_keys[entry.key] = shape

    def weight(self, key: bytes) -> float:
        """For how many keys this one speaks."""
        shape = self.read_keys[key]
        return max(1.0, self.totals[shape] / self.read[shape])


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

    def detected(self, sample: _Sample, known_to_any: set[bytes], now_ms: int) -> Detected:
        """The verdict. A key that some candidate knows is odd to nobody."""
        keyspace = Keyspace(self.family, self.prefix, now_ms, self.totals)
        keys = sum(sample.weight(key) for key in self.known)
        odd = sum(sample.weight(key) for key in self.odd - known_to_any)
        jobs = with_state = 0.0
        queues = set(self.family.queues(keyspace))
        for subject in self.builder.subjects():
            job = self.family.read(subject, keyspace)
            if job is None:
                continue
            key = (subject.record or subject.facts[0]).key
            weight = sample.weight(key) * self.cut.get(key, 1.0)
            jobs += weight
            if job.state is not State.UNKNOWN:
                with_state += weight
                queues.add(job.queue)
        explained = keys / (keys + odd) if keys else 0.0
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
            not self.cut and all(sample.weight(key) == 1 for key in self.known | self.odd),
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
