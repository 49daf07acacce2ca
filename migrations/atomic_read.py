"""AtomicReader: what speaks of a job, read at one moment, for keyspaces in which workers move jobs meanwhile.

All keys of one job make one transaction (MULTI … EXEC of reading commands), many transactions one round trip. What would hold
the server for long is not read: a set or hash of many thousands of items as a whole, a search through a very long list. Neither
can keys be read at one moment that stand in several slots of a cluster. Only reads. Called by ``recheck.py``.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field
from redis.crc import key_slot

from ..schema.connection.address import Address, Kind
from ..schema.connection.connect import open_client, server_errors
from ..schema.connection.pipeline import PipelineConnection, mapping, open_pipeline
from ..schema.fact import Entry
from ..schema.family import Command
from ..schema.key_refs import KeyRef
from ..schema.text import to_bytes
from .cluster_scan import Cluster
from .large_fields import small_fields
from .long_keys import CHUNK, LIST_CHUNK, scored
from .reading import read_entries
from .throttle import UNTHROTTLED, Pace, Throttle

LONGEST_LIST = 100_000
"""Lists of more entries are not searched: a search holds the server for about a millisecond each 10,000."""
SEARCHED = 100_000_000
"""So many entries of lists are searched by one reader, about."""

Group = Sequence[KeyRef]
"""The keys that speak of one job."""

Nodes = Callable[[int], contextlib.AbstractContextManager[PipelineConnection]]
"""The way to the node that owns a slot; there is but one node where there is no cluster."""


@contextlib.contextmanager
def open_reader(address: Address, throttle: Throttle = UNTHROTTLED) -> Iterator[AtomicReader]:
    """The reader of a server or a cluster, open for the length of the block. Raises ServerError."""
    if address.kind is Kind.CLUSTER:
        with server_errors(address), Cluster(address) as cluster:
            yield AtomicReader(lambda slot: open_pipeline(cluster.owner_of(slot)), throttle.pace(), has_slots=True)
        return
    with open_client(address) as client:
        # Minutes may pass between two questions, in which a server may close the connection: each asks for one that is open.
        yield AtomicReader(lambda _slot: open_pipeline(client), throttle.pace())


@define
class AtomicReader:
    """Asks several questions at one moment, and remembers how much it has asked."""

    _nodes: Nodes
    _pace: Pace
    _has_slots: bool = field(default=False, kw_only=True)
    _searched: int = field(default=0, init=False)

    def read(self, groups: Sequence[Group]) -> list[list[Entry] | None]:
        """What stands in the keys of each group, nothing else beside it; None where they can't be read at one moment."""
        found: list[list[Entry] | None] = [None] * len(groups)
        measured = [[(measure, ref.key) for ref in group if (measure := _measure(ref))] for group in groups]
        for slot, indexes in self._by_slot([[ref.key for ref in group] for group in groups]).items():
            with self._nodes(slot) as pipe:
                sizes = _sizes(pipe, itertools.chain.from_iterable(measured[index] for index in indexes))
                bounded = [index for index in indexes if self._is_bounded(measured[index], sizes)]
                parts = small_fields(pipe, [ref for index in bounded for ref in groups[index]])
                asked = {index: [_without(ref, parts) for ref in groups[index]] for index in bounded}
                results = self._transact(pipe, [_commands(asked[index]) for index in bounded])
            for index, replies in zip(bounded, results, strict=True):
                found[index] = None if replies is None else _merged(_entries(asked[index], replies), parts)
        return found

    def read_apart(self, group: Group) -> tuple[list[Entry], bool] | None:
        """The same of one group that can't be read at one moment, and whether that is all; None where the server refuses.

        A large set or hash is read in parts, and keys are not compared with each other. Too long a list is not searched.
        """
        measured = [(measure, ref.key) for ref in group if (measure := _measure(ref))]
        with self._nodes(0) as pipe:
            sizes = _sizes(pipe, measured)
            large = {key for measure, key in measured if measure != "LLEN" and sizes.get(key, 0) > CHUNK}
            small = [
                ref for ref in group if ref.key not in large and (ref.redis_type != "list" or self._is_searchable(ref, sizes))
            ]
            parts = small_fields(pipe, small)
            asked = [_without(ref, parts) for ref in small]
            (replies,) = self._transact(pipe, [_commands(asked)])
            entries = None if replies is None else _merged(_entries(asked, replies), parts)
            if entries is None:
                return None
            entries += [_joined(read) for key in sorted(large) if (read := list(_in_parts(pipe, key)))]
        return entries, len(small) + len(large) == len(group)

    def _is_searchable(self, ref: KeyRef, sizes: Mapping[bytes, int]) -> bool:
        return _measure(ref) != "LLEN" or self._is_bounded([("LLEN", ref.key)], sizes)

    def ask(self, groups: Sequence[Sequence[Command]]) -> list[list[Any] | None]:
        """The replies to the commands of each group, which name one key each; None where the server refuses."""
        found: list[list[Any] | None] = [None] * len(groups)
        for slot, indexes in self._by_slot([[_key_of(command) for command in group] for group in groups]).items():
            with self._nodes(slot) as pipe:
                results = self._transact(pipe, [groups[index] for index in indexes])
            for index, replies in zip(indexes, results, strict=True):
                found[index] = replies
        return found

    def _by_slot(self, keys: Sequence[Sequence[bytes]]) -> dict[int, list[int]]:
        """Which groups of keys can be asked for in which slot; on a single server, all together."""
        if not self._has_slots:
            return {0: list(range(len(keys)))}
        found: dict[int, list[int]] = {}
        for index, names in enumerate(keys):
            slots = {key_slot(name) for name in names}
            if len(slots) == 1:
                found.setdefault(slots.pop(), []).append(index)
        return found

    def _transact(self, pipe: PipelineConnection, groups: Sequence[Sequence[Command]]) -> list[list[Any] | None]:
        """One transaction for each group, as many in a round trip as the throttle lets. Errors of single commands are replies."""
        found: list[list[Any] | None] = []
        most = self._pace.throttle.batch(len(groups))
        for start in range(0, len(groups), max(1, most)):
            some = groups[start : start + most]
            self._pace.begin()
            replies = pipe.call(command for group in some for command in (("MULTI",), *group, ("EXEC",)))
            self._pace.end(sum(map(len, some)))
            ends = itertools.accumulate(len(group) + 2 for group in some)
            found += [reply if isinstance(reply := replies[end - 1], list) else None for end in ends]
        return found

    def _is_bounded(self, measured: Sequence[tuple[str, bytes]], sizes: Mapping[bytes, int]) -> bool:
        """Whether the server won't be held for long by keys that are measured so."""
        lists = [sizes.get(key, 0) for measure, key in measured if measure == "LLEN"]
        self._searched += sum(lists)
        whole = (sizes.get(key, 0) for measure, key in measured if measure in ("HLEN", "SCARD"))
        return max(lists, default=0) <= LONGEST_LIST and self._searched <= SEARCHED and max(whole, default=0) <= CHUNK


def _without(ref: KeyRef, parts: Mapping[bytes, tuple[bytes, ...]]) -> KeyRef:
    """The same key; of a hash that is too large, only those of its fields that are not."""
    return ref if ref.items or ref.key not in parts else ref._replace(items=parts[ref.key])


def _merged(entries: list[Entry] | None, parts: Mapping[bytes, tuple[bytes, ...]]) -> list[Entry] | None:
    """The fields of a hash that was read in parts, as one entry."""
    if not parts or entries is None:
        return entries
    fields: dict[bytes, dict[bytes, bytes]] = {}
    for entry in entries:
        if entry.key in parts and entry.redis_type == "hash":
            fields.setdefault(entry.key, {}).update(entry.value)
    others = [entry for entry in entries if entry.key not in fields]
    return [*others, *(Entry(key, "hash", those) for key, those in fields.items())]


def _in_parts(pipe: PipelineConnection, key: bytes) -> Iterator[Entry]:
    return itertools.chain.from_iterable(read_entries(pipe, [key]))


def _joined(entries: Sequence[Entry]) -> Entry:
    """The parts of one set or hash as one entry."""
    if entries[0].redis_type == "hash":
        return evolve(entries[0], value={name: value for entry in entries for name, value in entry.value.items()})
    return evolve(entries[0], value=list(dict.fromkeys(itertools.chain.from_iterable(entry.value for entry in entries))))


def _key_of(command: Command) -> bytes:
    key = command[1]
    return key if isinstance(key, bytes) else to_bytes(str(key))


def _sizes(pipe: PipelineConnection, measured: Iterable[tuple[str, bytes]]) -> Mapping[bytes, int]:
    """How many items the keys have of which more than a few would be looked at."""
    commands = list(dict.fromkeys(measured))
    return {key: reply for (_, key), reply in zip(commands, pipe.call(commands), strict=True) if isinstance(reply, int)}


def _measure(ref: KeyRef) -> str | None:
    if not ref.items:
        return {"hash": "HLEN", "set": "SCARD"}.get(ref.redis_type)
    return "LLEN" if ref.redis_type == "list" else None


# Commands and replies


def _commands(group: Group) -> list[Command]:
    """What is asked about the keys of a group: of a whole key its time to live as well, which rules ask for."""
    found: list[Command] = []
    for key, redis_type, items in group:
        if not items:
            found += (_WHOLE[redis_type](key) if redis_type in _WHOLE else ("TYPE", key), ("PTTL", key))
        elif redis_type in _ITEMS:
            found.append((_ITEMS[redis_type], key, *items))
        else:
            found += (("LPOS", key, item, "COUNT", 0) for item in items)
    return found


_ITEMS: Mapping[str, str] = {"set": "SMISMEMBER", "hash": "HMGET", "zset": "ZMSCORE"}
"""What tells of some items of a key, but for lists."""
_WHOLE: Mapping[str, Callable[[bytes], Command]] = {
    "string": lambda key: ("GET", key),
    "list": lambda key: ("LRANGE", key, 0, LIST_CHUNK - 1),
    "hash": lambda key: ("HGETALL", key),
    "set": lambda key: ("SMEMBERS", key),
    "zset": lambda key: ("ZRANGE", key, 0, CHUNK - 1, "WITHSCORES"),
}
"""What reads a key. Of lists and zsets the head: the first entry that a scan makes of them."""


def _entries(group: Group, replies: Sequence[Any]) -> list[Entry] | None:
    """What the answers to a transaction say; None if the server has refused a part of it."""
    found: list[Entry] = []
    results = iter(replies)
    for key, redis_type, items in group:
        # Of an index, that one item is there or is not; of a list each item is asked for by itself.
        lookups = ((item,) for item in items) if items and redis_type not in _ITEMS else (items,)
        for those in lookups:
            reply = next(results)
            ttl_ms = None if those else next(results)
            if not isinstance(reply, Exception):
                found += _entries_of(key, redis_type, those, reply, ttl_ms if isinstance(ttl_ms, int) and ttl_ms >= 0 else None)
            elif not _is_other_type(reply):
                return None
    return found


def _is_other_type(error: Exception) -> bool:
    """Whether the key is of another type: it says nothing of the job then."""
    return str(error).startswith("WRONGTYPE")


def _entries_of(key: bytes, redis_type: str, items: Sequence[bytes], reply: Any, ttl_ms: int | None) -> Iterator[Entry]:
    """The entries of a key, as far as something stands there."""
    match redis_type:
        case _ if not items:
            if reply not in (None, [], {}) and redis_type in _WHOLE:
                yield Entry(key, redis_type, _value(redis_type, reply), ttl_ms)
        case "zset":
            # Ranks are not asked for: no rule is about them.
            for item, score in zip(items, reply, strict=True):
                if score is not None:
                    yield Entry(key, redis_type, [(item, float(score))])
        case "set":
            yield from (Entry(key, redis_type, [item]) for item, is_there in zip(items, reply, strict=True) if is_there)
        case "hash":
            yield from (
                Entry(key, redis_type, {item: value}) for item, value in zip(items, reply, strict=True) if value is not None
            )
        case "list":
            yield from (Entry(key, redis_type, [*items], offset=offset) for offset in reply or ())


def _value(redis_type: str, reply: Any) -> Any:
    match redis_type:
        case "zset":
            return scored(reply)
        case "hash":
            return mapping(reply)
        case "set":
            return list(reply)
    return reply
