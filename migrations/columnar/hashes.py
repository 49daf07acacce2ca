"""Hashes: the records of jobs as the server sends them, without a dict, or even an object, for each (resp_views.py).

Making these takes as long as all else that reading costs, and who wants columns needs none. What reading.py promises holds
here too: a key that goes away is left out, batches are bounded, no command holds the server longer than one chunk takes. A
key that is no small hash, or none any more, is handed back for ``read_all``.

Only reads. The client must be one of ``connection/connect.py``, whose replies have the form of version 2 of the protocol.
Called by Spark's snapshots and by the data source's table ``entries``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from ...schema.columnar.binary_views import NO_NUMBER, NULL, BinaryViews
from ...schema.connection.pipeline import PipelineConnection
from ...schema.fact import Entry, FactKind
from ...schema.family import Command, KeyFamily
from ..globs import covering
from ..reading import BATCH_BYTES, SMALL_HASH, checked, is_wrong_type
from ..throttle import Pace
from .columns import NO_TTL, DecodedKeys, FieldValues, Hashes, Keys, Lists, Zset
from .resp_views import RespReader, UnexpectedReply

T = TypeVar("T")

FIRST = 100
"""Keys to read in one round trip as long as their size is not known."""

BATCH = 500
"""The same once it is. What is done once for each takes as long here as a hundred keys. The server takes some hundred commands
from one connection before it looks at the next, so its other clients wait no longer for so many than for half of them; for twice
as many they would."""

FIELDS_BATCH = 1000
"""The same where only some fields are asked for, of which its other clients notice even less."""

REPLY_BYTES = 6 << 20
"""Bytes of replies that are looked at together: enough to forget what is done once for all of them, and few enough for a
processor's cache."""
BOUNDED = (b"HRANDFIELD", b"%d" % (SMALL_HASH + 1), b"WITHVALUES")
"""Reads a hash as HGETALL does, but never more than that many fields: chosen at random where there are more. That spares asking
for the length first, which takes a sixth of the server's time. Known since Redis 6.2."""

Values = Sequence[bytes | None]
"""The values of some fields of a hash; None where it lacks one."""


KeyTest = Callable[[BinaryViews], Any]
"""Tells of each name of a key something that is true or false (bool)."""


def record_test(family: KeyFamily, prefix: str) -> KeyTest:
    """Tells of names of hashes whether they are those of jobs' records; true of all where a family's names don't tell."""
    if not family.names_records:
        return lambda keys: np.ones(len(keys), bool)
    likely, batch = record_guess(family, prefix), family.batch_prefilter(prefix, 0)

    def states_record(key: bytes) -> bool:
        return any(fact.kind is FactKind.RECORD for fact in family.facts(Entry(key, "hash", {}), prefix))

    def test(keys: BinaryViews) -> Any:
        likely_records = likely(keys)
        unclear = ~likely_records if batch is None else ~likely_records & (batch.owners(keys) == NO_NUMBER)
        for index in np.flatnonzero(unclear).tolist():
            likely_records[index] = states_record(keys[index])
        return likely_records

    return test


def record_guess(family: KeyFamily, prefix: str) -> KeyTest:
    """Tells quickly of names whether they are those of jobs' records in all likelihood; false where nothing does."""
    batch = family.batch_prefilter(prefix, 0)
    if batch is not None:
        return lambda keys: batch.records(keys) != NO_NUMBER
    prefilter = family.prefilter(prefix, 0)
    if prefilter is None:
        return lambda keys: np.zeros(len(keys), bool)
    return lambda keys: np.array([bool(prefilter.is_record(key)) for key in keys.to_list()], bool)


def of_family(found: Iterable[DecodedKeys], family: KeyFamily, prefix: str) -> Iterator[DecodedKeys]:
    """What of a snapshot file belongs to a keyspace, by the names of its keys."""
    likely, is_wanted = record_guess(family, prefix), covering(family.globs(prefix))
    for each in found:
        match each:
            case Keys():
                wanted = likely(each.keys)
                for index in np.flatnonzero(~wanted).tolist():
                    wanted[index] = is_wanted(each.keys[index])
                if wanted.any():
                    yield each.take(wanted)
            case Zset():
                if is_wanted(each.key):
                    yield each
            case _:
                if is_wanted(each[0]):
                    yield each


def read_hashes(replies: RespReader, keys: BinaryViews, pace: Pace) -> Iterator[tuple[Hashes, list[bytes]]]:
    """The hashes among the keys, some megabytes at a time, each time with the keys that are left to be read in another way."""
    pending: list[tuple[BinaryViews, Any, Any]] = []
    reread: list[tuple[Hashes, list[bytes]]] = []

    def read(batch: BinaryViews) -> None:
        pending.append((batch, _ttls(replies, batch), replies.counts(len(batch))))

    def again(batch: BinaryViews) -> None:
        reread.append(_hashes_by_reply(replies.pipe, batch.to_list()))

    for _ in _in_batches(replies, keys, [*_ttl_commands(replies), BOUNDED], read, again, pace):
        if pending and (reread or replies.held_bytes >= REPLY_BYTES):
            yield _hashes_of(pending, replies.words())
            pending.clear()
        yield from reread
        reread.clear()
    if pending:
        yield _hashes_of(pending, replies.words())


def read_lists(replies: RespReader, keys: BinaryViews, pace: Pace) -> Iterator[tuple[Lists, list[bytes]]]:
    """The short lists among the keys, in batches, each with the keys that are left, as above."""
    most = pace.throttle.sizes.items
    commands = [*_ttl_commands(replies), (b"LRANGE", b"0", b"%d" % (most - 1))]

    def read(batch: BinaryViews) -> tuple[Lists, list[bytes]]:
        ttls = _ttls(replies, batch)
        counts, words = replies.arrays(len(batch))
        are_short = counts < most
        there = are_short & (counts > 0)
        found = Lists(batch.take(there), ttls[there], counts[there], words.take(np.repeat(are_short, counts)))
        return found, batch.take(~are_short).to_list()

    def again(batch: BinaryViews) -> tuple[Lists, list[bytes]]:
        return _lists_by_reply(replies.pipe, batch.to_list(), most)

    return _in_batches(replies, keys, commands, read, again, pace)


def read_fields(replies: RespReader, keys: BinaryViews, fields: Sequence[bytes], pace: Pace) -> Iterator[FieldValues]:
    """These fields of the hashes among the keys, in batches. Keys of other types are left out."""
    empty_or_gone: list[bytes] = []

    def read(batch: BinaryViews) -> FieldValues:
        _, values = replies.arrays(len(batch))
        # A hash without any of the fields answers as a key that is gone does.
        are_empty = (values.sizes.reshape(len(batch), -1) == NULL).all(axis=1)
        if not are_empty.any():
            return FieldValues(batch, values)
        empty_or_gone.extend(batch.take(are_empty).to_list())
        return FieldValues(batch.take(~are_empty), values.take(np.repeat(~are_empty, len(fields))))

    def again(batch: BinaryViews) -> FieldValues:
        return _fields_by_reply(replies.pipe, batch.to_list(), fields)

    batches = _in_batches(replies, keys, [(b"HMGET", *fields)], read, again, pace, FIELDS_BATCH)
    yield from (found for found in batches if len(found.keys))
    size = pace.throttle.batch(BATCH)
    for start in range(0, len(empty_or_gone), size):
        those = empty_or_gone[start : start + size]
        pace.begin()
        values_by_key = zip(those, _read_atomically(replies.pipe, those, fields), strict=True)
        pace.end(len(those))
        found = _field_values({key: values for key, values in values_by_key if values is not None})
        if len(found.keys):
            yield found


def _in_batches(
    replies: RespReader,
    keys: BinaryViews,
    commands: Sequence[Sequence[bytes]],
    read: Callable[[BinaryViews], T],
    again: Callable[[BinaryViews], T],
    pace: Pace,
    most: int = BATCH,
) -> Iterator[T]:
    """What ``read`` gives of the replies to these commands about the keys, FIRST at first, then so many keys at a time as made
    about BATCH_BYTES the last time. ``again`` gives the same of keys that had an unexpected reply.

    While one batch is looked at, the server works on the next: unless they are large, a reply was unexpected, or there is a
    throttle. Nothing else may be asked over the same connection until all is read.
    """
    start, most = 0, pace.throttle.batch(most)
    size, is_small, asks_ahead = min(most, FIRST), False, not pace.throttle.keys_per_second
    following: BinaryViews | None = None

    def ask() -> BinaryViews:
        nonlocal start
        batch = keys.slice(start, start + size)
        start += len(batch)
        pace.begin()
        replies.ask(batch, *commands)
        return batch

    while following is not None or start < len(keys):
        batch = ask() if following is None else following
        following = ask() if asks_ahead and is_small and start < len(keys) else None
        before = replies.pipe.received
        try:
            found = read(batch)
        except UnexpectedReply:
            if following is not None:  # its replies are gone as well
                start, following = start - len(following), None
            asks_ahead, found = False, again(batch)
        pace.end(len(batch))
        size = max(1, min(most, BATCH_BYTES * len(batch) // (replies.pipe.received - before + 1)))
        is_small = size == most
        yield found


def _hashes_of(pending: Sequence[tuple[BinaryViews, Any, Any]], words: BinaryViews) -> tuple[Hashes, list[bytes]]:
    """The hashes of batches of one list of keys; ``pending``: of each batch the keys, their times to live, and how many words."""
    starts, sizes, ttls, counts = (
        np.concatenate(columns)
        for columns in zip(*((keys.starts, keys.sizes, *others) for keys, *others in pending), strict=True)
    )
    keys_read = BinaryViews(pending[0][0].data, starts, sizes)
    are_small = counts <= 2 * SMALL_HASH
    found = Hashes(keys_read, ttls, counts, words).take(are_small & (counts > 0))
    return found, keys_read.take(~are_small).to_list()


def _ttl_commands(replies: RespReader) -> list[tuple[bytes]]:
    return [] if replies.no_ttls else [(b"PTTL",)]


def _ttls(replies: RespReader, keys_read: BinaryViews) -> Any:
    """The times to live for which ``_ttl_commands`` have asked."""
    return np.full(len(keys_read), NO_TTL, np.int64) if replies.no_ttls else replies.integers(len(keys_read))


# After an unexpected reply: all of a batch once more, reply by reply.


def _hashes_by_reply(pipe: PipelineConnection, keys_read: Sequence[bytes]) -> tuple[Hashes, list[bytes]]:
    lengths, ttls = pipe.ask_each(keys_read, (b"HLEN",), (b"PTTL",))
    left = [key for key, length in zip(keys_read, lengths, strict=True) if is_wrong_type(length) or checked(length) > SMALL_HASH]
    small = [index for index, length in enumerate(lengths) if type(length) is int and 0 < length <= SMALL_HASH]
    keys, ttls = [keys_read[index] for index in small], [checked(ttls[index]) for index in small]
    (replies,) = pipe.ask_each(keys, (b"HGETALL",))
    left += [key for key, reply in zip(keys, replies, strict=True) if is_wrong_type(reply)]
    there = [index for index, reply in enumerate(replies) if not is_wrong_type(reply) and checked(reply)]
    keys, ttls, replies = ([column[index] for index in there] for column in (keys, ttls, replies))
    return Hashes.of(keys, ttls, replies), left


def _lists_by_reply(pipe: PipelineConnection, keys_read: Sequence[bytes], most: int) -> tuple[Lists, list[bytes]]:
    ttls, replies = pipe.ask_each(keys_read, (b"PTTL",), (b"LRANGE", b"0", b"%d" % (most - 1)))
    left = [key for key, items in zip(keys_read, replies, strict=True) if is_wrong_type(items) or len(checked(items)) == most]
    others = set(left)
    there = [index for index, items in enumerate(replies) if keys_read[index] not in others and items]
    keys, ttls, replies = ([column[index] for index in there] for column in (keys_read, ttls, replies))
    return Lists.of(keys, list(map(checked, ttls)), replies), left


def _fields_by_reply(pipe: PipelineConnection, keys_read: Sequence[bytes], fields: Sequence[bytes]) -> FieldValues:
    (replies,) = pipe.ask_each(keys_read, (b"HMGET", *fields))
    nothing = [None] * len(fields)
    there = {key: reply for key, reply in zip(keys_read, replies, strict=True) if not is_wrong_type(reply)}
    empty_or_gone = [key for key, reply in there.items() if checked(reply) == nothing]
    for key, values in zip(empty_or_gone, _read_atomically(pipe, empty_or_gone, fields), strict=True):
        if values is None:
            del there[key]
        else:
            there[key] = values
    return _field_values(there)


def _field_values(rows: Mapping[bytes, Values]) -> FieldValues:
    return FieldValues(BinaryViews.of(rows), BinaryViews.of(chain.from_iterable(rows.values())))


def _read_atomically(pipe: PipelineConnection, keys: Sequence[bytes], fields: Sequence[bytes]) -> list[Values | None]:
    """The fields of each key at a moment when it was a hash; None for one that is none, or is gone."""
    commands: list[Command] = []
    for key in keys:
        commands += ("HLEN", key), ("HMGET", key, *fields)
    replies = checked(pipe.call([("MULTI",), *commands, ("EXEC",)])[-1])
    return [
        None if is_wrong_type(length) or not checked(length) else checked(values)
        for length, values in zip(replies[::2], replies[1::2], strict=True)
    ]
