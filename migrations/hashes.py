"""Hashes: the records of jobs as the server sends them, without a dict or an Entry for each.

Making these takes as long as all else that reading costs, and who wants columns needs neither. What reading.py promises holds
here too: a key that goes away is left out, batches are bounded, no command holds the server longer than one chunk takes. A
key that is no small hash, or none any more, is handed back for ``read_all``.

Only reads. The client must be one of ``schema/connect.py``, whose replies have the form of version 2 of the protocol. Called by
Spark's snapshots and by the data source's table ``entries``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from attrs import frozen

from ..schema.fact import Entry, FactKind
from ..schema.family import Command, KeyFamily
from .reading import BATCH, BATCH_BYTES, SAMPLE, SMALL_HASH, Guess, checked, is_wrong_type, no_guess
from .throttle import Pace
from .wire import Wire

T = TypeVar("T")

Reply = Sequence[bytes]
"""A hash as Redis sends it: names and values in turn."""
Values = Sequence[bytes | None]
"""The values of some fields of a hash; None where it lacks one."""


@frozen
class Hashes:
    """Some keys, each a hash of at most SMALL_HASH fields."""

    keys: Sequence[bytes]
    ttls: Sequence[int]
    """In ms, negative for a key that stays."""
    replies: Sequence[Reply]
    size: int
    """Bytes of the replies."""


@frozen
class Lists:
    """Some keys, each a list that one command reads whole (``Sizes.items``)."""

    keys: Sequence[bytes]
    ttls: Sequence[int]
    """As above."""
    replies: Sequence[Sequence[bytes]]


@frozen
class Picked:
    """Some keys, each a hash, and the values of some fields."""

    keys: Sequence[bytes]
    rows: Sequence[Values]


def record_test(family: KeyFamily, prefix: str) -> Guess:
    """Tells of the name of a hash whether it is that of a job's record; true of all where a family's names don't tell."""
    if not family.names_records:
        return lambda _key: True
    likely = record_guess(family, prefix)
    return lambda key: likely(key) or any(fact.kind is FactKind.RECORD for fact in family.facts(Entry(key, "hash", {}), prefix))


def record_guess(family: KeyFamily, prefix: str) -> Guess:
    """Tells quickly of the name of a key whether it is that of a job's record in all likelihood; false where nothing does."""
    voucher = family.voucher(prefix, 0)
    return no_guess if voucher is None else voucher.is_record


def read_whole(line: Wire, keys: Sequence[bytes], pace: Pace) -> Iterator[tuple[Hashes, list[bytes]]]:
    """The hashes among the keys, in batches, each with the keys of the batch that are left to be read in another way."""
    return _in_batches(keys, pace, lambda batch: _whole(line, batch), lambda found: found[0].replies)


def read_lists(line: Wire, keys: Sequence[bytes], pace: Pace) -> Iterator[tuple[Lists, list[bytes]]]:
    """The short lists among the keys, in batches, each with the keys that are left, as above."""
    return _in_batches(keys, pace, lambda batch: _lists(line, batch, pace.throttle.sizes.items), lambda found: found[0].replies)


def read_fields(line: Wire, keys: Sequence[bytes], fields: Sequence[bytes], pace: Pace) -> Iterator[Picked]:
    """These fields of the hashes among the keys, in batches. Keys of other types are left out."""
    return _in_batches(keys, pace, lambda batch: _fields(line, batch, fields), lambda found: found.rows)


def _in_batches(
    keys: Sequence[bytes], pace: Pace, read: Callable[[Sequence[bytes]], T], rows: Callable[[T], Sequence[Values]]
) -> Iterator[T]:
    """What ``read`` gives of the keys, so many at a time as made about BATCH_BYTES the last time."""
    start, most = 0, pace.throttle.batch(BATCH)
    size = most
    while start < len(keys):
        batch = keys[start : start + size]
        pace.begin()
        found = read(batch)
        pace.end(len(batch))
        start += len(batch)
        weighed = rows(found)[::SAMPLE]
        size = max(1, min(most, BATCH_BYTES * len(weighed) // (sum(map(_weight, weighed)) + 1))) if weighed else most
        yield found


def _weight(values: Values) -> int:
    return sum(map(len, filter(None, values)))


def _whole(line: Wire, keys: Sequence[bytes]) -> tuple[Hashes, list[bytes]]:
    # The length of a hash tells its type as well, and whether one plain command may read it.
    lengths, ttls = line.ask_each(keys, (b"HLEN",), (b"PTTL",))
    left: list[bytes] = []
    if not (_are(int, lengths) and min(lengths) > 0 and max(lengths) <= SMALL_HASH):
        left = [key for key, length in zip(keys, lengths, strict=True) if is_wrong_type(length) or checked(length) > SMALL_HASH]
        small = [index for index, length in enumerate(lengths) if type(length) is int and 0 < length <= SMALL_HASH]
        keys, ttls = [keys[index] for index in small], [ttls[index] for index in small]
    received = line.received
    (replies,) = line.ask_each(keys, (b"HGETALL",))
    size = line.received - received
    if not (_are(list, replies) and all(replies)):
        left += [key for key, reply in zip(keys, replies, strict=True) if is_wrong_type(reply)]
        there = [index for index, reply in enumerate(replies) if not is_wrong_type(reply) and checked(reply)]
        keys, ttls, replies = ([column[index] for index in there] for column in (keys, ttls, replies))
    if not _are(int, ttls):
        ttls = list(map(checked, ttls))
    return Hashes(keys, ttls, replies, size), left


def _lists(line: Wire, keys: Sequence[bytes], most: int) -> tuple[Lists, list[bytes]]:
    ttls, replies = line.ask_each(keys, (b"PTTL",), (b"LRANGE", b"0", b"%d" % (most - 1)))
    if _are(int, ttls) and _are(list, replies) and all(replies) and max(map(len, replies)) < most:
        return Lists(keys, ttls, replies), []
    left = [key for key, items in zip(keys, replies, strict=True) if is_wrong_type(items) or len(checked(items)) == most]
    others = set(left)
    there = [index for index, items in enumerate(replies) if keys[index] not in others and items]
    keys, ttls, replies = ([column[index] for index in there] for column in (keys, ttls, replies))
    return Lists(keys, list(map(checked, ttls)), replies), left


def _fields(line: Wire, keys: Sequence[bytes], fields: Sequence[bytes]) -> Picked:
    (replies,) = line.ask_each(keys, (b"HMGET", *fields))
    if not _are(list, replies):
        there = [index for index, reply in enumerate(replies) if not is_wrong_type(reply) and checked(reply)]
        keys, replies = [keys[index] for index in there], [replies[index] for index in there]
    # A hash without any of the fields answers as a key that is gone does.
    nothing = [None] * len(fields)
    if nothing not in replies:
        return Picked(keys, replies)
    doubtful = [index for index, values in enumerate(replies) if values == nothing]
    answers = _at_once(line, [keys[index] for index in doubtful], fields)
    answered = {index: values for index, values in zip(doubtful, answers, strict=True) if values is not None}
    there = [index for index, values in enumerate(replies) if index in answered or values != nothing]
    return Picked([keys[index] for index in there], [answered.get(index, replies[index]) for index in there])


def _at_once(line: Wire, keys: Sequence[bytes], fields: Sequence[bytes]) -> list[Values | None]:
    """The fields of each key at a moment when it was a hash; None for one that is none, or is gone."""
    commands: list[Command] = []
    for key in keys:
        commands += ("HLEN", key), ("HMGET", key, *fields)
    replies = checked(line.call([("MULTI",), *commands, ("EXEC",)])[-1])
    return [
        None if is_wrong_type(length) or not checked(length) else checked(values)
        for length, values in zip(replies[::2], replies[1::2], strict=True)
    ]


def _are(kind: type, replies: Sequence[Any]) -> bool:
    """Whether all replies are of one kind, and none is an error."""
    return set(map(type, replies)) <= {kind}
