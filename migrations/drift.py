"""Drift: whether a source has changed while it was carried, found by two looks at it: before the first key is read, and when all
is written.

A look is bounded, however large the source is: how many jobs there are, where indexes tell (``KeyFamily.count``); the names of
the keys in one part of SCAN's positions, which is a fair sample; what some of them say of jobs, a few of every kind; and how long
the lists, sets and hashes are in which those jobs stand. Keys that expire, what says nothing of jobs (heartbeats, counters,
locks, wake-up tokens) and ferryman's own keys don't count. So what is found has changed; what is not found may have, in a large
source that hardly changes. Only reads. Called by both engines.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any, Self

import redis
from attrs import asdict, field, frozen
from redis.crc import key_slot

from ..schema.connection.address import Address, Kind
from ..schema.connection.connect import open_client, server_errors
from ..schema.connection.pipeline import open_pipeline
from ..schema.connection.slot_map import REDIRECTIONS, Node
from ..schema.errors import FerrymanError
from ..schema.fact import Entry, Fact
from ..schema.family import Command, Keyspace
from ..schema.text import show
from .cluster_scan import Cluster
from .counting import count
from .globs import covering
from .key_sample import LARGE, LENGTHS
from .reading import checked, is_wrong_type, read_entries
from .run import is_of_journal
from .scan import EVERYTHING, SCAN_COUNT, Cursors, Span, node, ranges, scan_range
from .slots import keys_of
from .subjects import SubjectBuilder
from .throttle import Throttle

NAMES = 5_000
"""Key names that are looked at, about; twice as many at first, because a page of SCAN does not end where a part of the positions
does. Of a source with fewer than twice as many keys all are."""
VALUES = 200
"""Keys that are read."""
TOGETHER = 10
"""Of these, in one round trip."""
MOST_BYTES = 8 << 20
"""What they may hold together, about: no more are read then."""
CONTAINERS = 1_000
"""Lists, sets, zsets and hashes whose lengths are asked for."""
THROTTLED = 20
"""Under a throttle no more names are looked at than it allows in a twentieth of a second."""
PAGE = 1_000
"""Commands in one round trip."""
EXAMPLES = 3

_NodeSpan = tuple[Node | None, Span]
"""A part of the keys of a node; None for the one server."""
_CONTENT = attrgetter("kind", "role", "job_id", "scope", "member", "score", "label", "values")


@frozen
class Drift:
    """What two looks at a source have shown."""

    jobs_before: int | None = None
    """By the lengths of its indexes; None where a family's don't tell."""
    jobs_after: int | None = None
    names: int = 0
    """Keys whose names were looked at."""
    added: int = 0
    gone: int = 0
    sampled: int = 0
    """Keys of which it was compared what they say of jobs, or how long they are."""
    differing: int = 0
    examples: tuple[str, ...] = ()
    """Some keys that are new, gone or different."""
    unseen: str | None = None
    """Why there was no second look: then nothing is known."""

    @property
    def is_changed(self) -> bool:
        """Whether the source is not what it was."""
        return bool(self.added or self.gone or self.differing or self.jobs_before != self.jobs_after)

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "is_changed": self.is_changed}

    @classmethod
    def from_dict(cls, raw: dict[str, Any]) -> Self:
        """The drift behind ``to_dict``."""
        return cls(**{name: value for name, value in raw.items() if name != "is_changed"} | {"examples": tuple(raw["examples"])})

    def __str__(self) -> str:
        """The numbers for people."""
        changes = []
        if self.jobs_before is not None and self.jobs_after is not None and self.jobs_before != self.jobs_after:
            more = self.jobs_after - self.jobs_before
            word = f"{more:,} jobs more" if more > 0 else f"{-more:,} jobs fewer"
            changes.append(f"{word} ({self.jobs_before:,} before, {self.jobs_after:,} after)")
        if self.added or self.gone:
            changes.append(f"of {self.names:,} keys {self.added:,} are new and {self.gone:,} gone")
        if self.differing:
            changes.append(f"{self.differing:,} of {self.sampled:,} sampled keys differ")
        return "; ".join(changes) + (f" (such as {', '.join(self.examples)})" if self.examples else "")


@frozen
class Look:
    """What a source was like at one moment."""

    jobs: int | None
    """As in Drift."""
    spans: tuple[_NodeSpan, ...]
    """The parts whose names are looked at."""
    owners: Mapping[int, Node] | None
    """Of a cluster's slots: who has what. When that changes, keys are elsewhere, and nothing can be said."""
    names: frozenset[bytes] = frozenset()
    """In these parts, and in those that come next to them."""
    digests: Mapping[bytes, int] = field(factory=dict)
    """Key -> a digest of what it says of jobs."""
    lengths: Mapping[tuple[bytes, str], int] = field(factory=dict)
    """Key and type -> how many items it has."""
    expiring: frozenset[bytes] = frozenset()
    """The names of keys that will expire."""
    unrelated: frozenset[bytes] = frozenset()
    """The patterns of names (``pattern_of``) of which one has been seen to say nothing of jobs."""


class Watch:
    """Looks at the source of one migration."""

    def __init__(self, source: Address, target: Address, throttle: Throttle) -> None:
        self._source = source
        self._family = source.key_family
        self._throttle = throttle
        is_here = (source.hosts, source.path, source.service, source.db) == (target.hosts, target.path, target.service, target.db)
        self._is_target: Callable[[bytes], bool] = (
            covering(target.key_family.globs(target.prefix)) if is_here and target.prefix else lambda _: False
        )

    def look(self) -> Look | None:
        """The first look; None at a snapshot file, which does not change. Raises ServerError."""
        if self._source.kind is Kind.RDB:
            return None
        jobs = self._jobs()
        with self._nodes() as nodes:
            narrow, wide = nodes.spans(self._throttle)
            names = frozenset(self._names(nodes, wide))
            listed = list(names)
            left = nodes.ask([("PTTL", name) for name in listed])
            expiring = frozenset(name for name, ttl_ms in zip(listed, left, strict=True) if ttl_ms >= 0)
            digests, lengths, unrelated = self._sample(nodes, names - expiring)
            return Look(jobs, tuple(narrow), nodes.owners, names, digests, lengths, expiring, unrelated)

    def since(self, before: Look | None) -> Drift | None:
        """What has changed since the first look. A source that has failed by now is no error: all of it was read."""
        if before is None:
            return None
        try:
            return self._compared(before)
        except FerrymanError as error:
            return Drift(unseen=str(error))
        except REDIRECTIONS:
            return Drift(unseen="slots of the cluster have moved")

    def _compared(self, before: Look) -> Drift:
        with self._nodes() as nodes:
            if nodes.owners != before.owners:
                return Drift(unseen="slots of the cluster have moved")
            names = set(self._names(nodes, before.spans))
            added = self._about_jobs(nodes, names - before.names)
            candidates = [name for name in before.names - names - before.expiring if pattern_of(name) not in before.unrelated]
            replies = nodes.ask([("EXISTS", name) for name in candidates])
            gone = {name for name, exists in zip(candidates, replies, strict=True) if not exists}
            digests = self._digests(nodes, before.digests)
            differing = [key for key, digest in before.digests.items() if digests.get(key) != digest and key not in gone]
            lengths = nodes.lengths(before.lengths)
            differing += [ref[0] for ref, length in before.lengths.items() if lengths.get(ref) != length]
        found = dict.fromkeys((*differing, *added, *sorted(gone)))
        return Drift(
            before.jobs,
            self._jobs(),
            len(before.names),
            len(added),
            len(gone),
            len(before.digests) + len(before.lengths),
            len(differing),
            tuple(show(key, 60) for key in islice(found, EXAMPLES)),
        )

    def _jobs(self) -> int | None:
        counted = count(self._source)
        return None if counted is None else sum(status.states.total() for status in counted[1])

    def _nodes(self) -> contextlib.AbstractContextManager[_Nodes]:
        return _opened(self._source)

    def _names(self, nodes: _Nodes, spans: Iterable[_NodeSpan]) -> Iterator[bytes]:
        globs, count, pace = self._family.globs(self._source.prefix), self._throttle.page(SCAN_COUNT), self._throttle.pace()
        for name, span in spans:
            pace.begin()
            for page in scan_range(nodes.client(name), span, globs, count):
                yield from (key for key in page if not (is_of_journal(key) or self._is_target(key)))
                pace.end(len(page))
                pace.begin()

    def _sample(
        self, nodes: _Nodes, names: Iterable[bytes]
    ) -> tuple[dict[bytes, int], dict[tuple[bytes, str], int], frozenset[bytes]]:
        """What some keys of every kind say; the lengths of what their jobs stand in; and the patterns of names to leave alone."""
        digests: dict[bytes, int] = {}
        unrelated = set()
        builder = SubjectBuilder(self._family)
        longer: list[tuple[bytes, str]] = []
        for key, redis_type, is_long, _, facts in self._read(nodes, spread(names, VALUES)):
            if not facts:
                unrelated.add(pattern_of(key))
            elif is_long:
                longer.append((key, redis_type))
            else:
                digests[key] = _digest(facts)
            for fact in facts[:TOGETHER]:
                builder.add(fact)
        keyspace = Keyspace(self._family, self._source.prefix, 0)
        refs = (ref for subject in builder.subjects() for ref in self._family.related_keys(subject, keyspace) if ref.items)
        containers_of_jobs = ((ref.key, ref.redis_type) for ref in refs if ref.key not in digests and ref.redis_type in LENGTHS)
        containers = list(islice(dict.fromkeys((*longer, *containers_of_jobs)), CONTAINERS))
        left = nodes.ask([("PTTL", key) for key, _ in containers])
        return (
            digests,
            nodes.lengths(each for each, ttl_ms in zip(containers, left, strict=True) if ttl_ms < 0),
            frozenset(unrelated),
        )

    def _digests(self, nodes: _Nodes, keys: Iterable[bytes]) -> dict[bytes, int]:
        """What these keys say now."""
        return {key: _digest(facts) for key, _, _, _, facts in self._read(nodes, keys) if facts}

    def _about_jobs(self, nodes: _Nodes, names: Iterable[bytes]) -> list[bytes]:
        """Those of the keys that say something of jobs, and do not expire; of many alike some are read."""
        by_pattern = defaultdict(list)
        for name in names:
            by_pattern[pattern_of(name)].append(name)
        sampled = self._read(nodes, spread((name for those in by_pattern.values() for name in those), VALUES))
        patterns = {pattern_of(key) for key, _, _, ttl_ms, facts in sampled if facts and ttl_ms is None}
        return [name for pattern in patterns for name in by_pattern[pattern]]

    def _read(self, nodes: _Nodes, keys: Iterable[bytes]) -> Iterator[tuple[bytes, str, bool, int | None, list[Fact]]]:
        """Name, type, whether it is too long to be read, time to live, and the facts about jobs, of each key that is there."""
        pace, left = self._throttle.pace(), MOST_BYTES
        waiting = list(keys)
        for start in range(0, len(waiting), TOGETHER):
            batch = waiting[start : start + TOGETHER]
            pace.begin()
            for entry in nodes.heads(batch):
                items = entry.value if isinstance(entry.value, dict | list) else ()
                facts = [fact for fact in self._family.facts(entry, self._source.prefix) if fact.job_id is not None]
                left -= sum(len(value) for fact in facts for value in fact.values)
                yield entry.key, entry.redis_type, len(items) >= LARGE, entry.ttl_ms, facts
            pace.end(len(batch))
            if left <= 0:
                return


_VARIES = re.compile(rb"[0-9a-fA-F][0-9a-fA-F-]{7,}|[0-9]+")


def pattern_of(name: bytes) -> bytes:
    """What all names have in common that differ only in their numbers."""
    return _VARIES.sub(b"#", name)


def spread(names: Iterable[bytes], most: int) -> list[bytes]:
    """Some of the names, in which all kinds take turns; the same ones of the same names."""
    by_pattern = defaultdict(list)
    for name in sorted(names):
        by_pattern[pattern_of(name)].append(name)
    turns = (
        (rank, name) for those in by_pattern.values() for rank, name in enumerate(those[:: max(1, len(those) // most)][:most])
    )
    return [name for _, name in sorted(turns)[:most]]


def _digest(facts: Iterable[Fact]) -> int:
    return hash(frozenset(map(_CONTENT, facts)))


@frozen
class _Nodes:
    """The server, or all masters of a cluster."""

    server: redis.Redis | None
    cluster: Cluster | None = None
    owners: Mapping[int, Node] | None = None

    def client(self, name: Node | None) -> redis.Redis:
        """A node's client; None for the one server."""
        if self.cluster is not None and name is not None:
            return self.cluster.client(name)
        assert self.server is not None
        return self.server

    def spans(self, throttle: Throttle) -> tuple[list[_NodeSpan], list[_NodeSpan]]:
        """The parts whose names are looked at, and these with those that come next."""
        narrow: list[_NodeSpan] = []
        wide: list[_NodeSpan] = []
        masters = self.cluster.masters() if self.cluster is not None else [None]
        for name in masters:
            size = int(self.client(name).dbsize())
            budget = NAMES // len(masters)
            if throttle.keys_per_second:
                budget = min(budget, int(throttle.keys_per_second / THROTTLED))
            number = size // max(1, budget) + 1
            spans: Sequence[Span] = [EVERYTHING]
            if number > 2:
                spans = self._cut(name, number)
                if len(spans) == 1:
                    continue  # its cursors can't be cut, and all would be too much
            narrow += [(name, span) for span in (spans[:1] if len(spans) > 2 else spans)]
            wide += [(name, span) for span in spans[:2]]
        return narrow, wide

    def _cut(self, name: Node | None, number: int) -> Sequence[Span]:
        if self.cluster is not None and name is not None:
            return self.cluster.spans(name, number)
        return ranges(number) if node(self.client(name)).cursors is Cursors.POSITIONS else [EVERYTHING]

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """The replies to commands about one key each; None where the key has another type."""
        replies: list[Any] = [None] * len(commands)
        for client, indexes in self._by_owner([keys_of(command)[0] for command in commands]):
            with open_pipeline(client) as pipe:
                for start in range(0, len(indexes), PAGE):
                    page = indexes[start : start + PAGE]
                    for index, reply in zip(page, pipe.call(commands[index] for index in page), strict=True):
                        replies[index] = None if is_wrong_type(reply) else checked(reply)
        return replies

    def lengths(self, keys: Iterable[tuple[bytes, str]]) -> dict[tuple[bytes, str], int]:
        """How many items each of these has."""
        pairs = list(keys)
        replies = self.ask([(LENGTHS[redis_type], key) for key, redis_type in pairs])
        return {each: length for each, length in zip(pairs, replies, strict=True) if length is not None}

    def heads(self, keys: Sequence[bytes]) -> Iterator[Entry]:
        """Each key, or the beginning of a long one."""
        for client, indexes in self._by_owner(keys):
            with open_pipeline(client) as pipe:
                yield from next(read_entries(pipe, [keys[index] for index in indexes]), [])

    def _by_owner(self, keys: Sequence[bytes]) -> Iterator[tuple[redis.Redis, list[int]]]:
        if self.cluster is None:
            if keys:
                yield self.client(None), list(range(len(keys)))
            return
        by_slot = defaultdict(list)
        for index, key in enumerate(keys):
            by_slot[key_slot(key)].append(index)
        by_owner: defaultdict[redis.Redis, list[int]] = defaultdict(list)
        for slot, indexes in by_slot.items():
            by_owner[self.cluster.owner_of(slot)] += indexes
        yield from by_owner.items()


@contextlib.contextmanager
def _opened(address: Address) -> Iterator[_Nodes]:
    if address.kind is Kind.CLUSTER:
        with server_errors(address), Cluster(address) as cluster:
            yield _Nodes(None, cluster, cluster.refresh())
        return
    with open_client(address) as client:
        yield _Nodes(client)
