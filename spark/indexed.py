"""Indexed: the records of jobs, found by an index in which all of them stand (schema/index.py), instead of by a scan.

A scan costs the server half as much for each key of a keyspace as its record does; an index costs next to nothing, and its order
is nearly that in which records lie in the server's memory. What it lacks is not read: a record that the index has lost is for
audits to find. Only reads from the server. Called by the data source.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import redis

from ..migrations.keyparts import KeyPart, cut_zset
from ..migrations.reading import BATCH
from ..migrations.throttle import Pace
from ..migrations.wire import wire
from ..schema.address import Address
from ..schema.compiled import compiled
from ..schema.errors import ServerError, UsageError
from ..schema.family import family_names, get_family
from ..schema.index import Index
from ..schema.text import to_text
from ..schema.textparts import joined
from ..schema.texts import Texts
from .replies import Replies
from .zsets import read_members


def index_of(address: Address) -> Index:
    """The index of a keyspace. Raises UsageError for a family that has none."""
    index = get_family(address.family).index(address.prefix)
    if index is None:
        those = [name for name in family_names() if get_family(name).index("") is not None]
        raise UsageError(
            f"the family {address.family} keeps no index of all jobs, by which to read their records ({', '.join(those)} does): "
            "leave out option 'by'"
        )
    return index


def cut_index(client: redis.Redis, address: Address, number: int) -> list[KeyPart]:
    """The parts of the index, about so many. Raises ServerError when there is none."""
    index = index_of(address)
    with wire(client) as line:
        if line.ask("TYPE", index.key) not in (b"zset", "zset"):
            raise ServerError(
                f"{address.display()}: there is no sorted set {to_text(index.key)!r}, by which to find records; check db and "
                "prefix, or leave out option 'by' to look for them among all keys"
            )
        return cut_zset(line, index.key, number)


def names_by_index(replies: Replies, part: KeyPart, address: Address, pace: Pace) -> Iterator[Texts]:
    """The names of the records of all members of a part of the index, some thousands at a time.

    Whoever stands in the index all the while, with the same score, is named once.
    """
    index, throttle = index_of(address), pace.throttle
    for found in pace.through(read_members(replies, part, throttle.sizes), throttle.batch(BATCH)):
        members = found.members
        begins = _behind(members.data, members.starts, members.sizes, index.mark)
        ids = Texts(members.data, begins, members.sizes - (begins - members.starts))
        yield joined(len(ids), [index.head, ids])


@compiled
def _behind(data: Any, starts: Any, sizes: Any, mark: int) -> Any:
    """Where the rest of each text begins behind the first such byte, or the text itself if it has none."""
    begins = np.empty(len(starts), np.int64)
    for row in range(len(starts)):
        begins[row] = starts[row]
        for at in range(starts[row], starts[row] + sizes[row]):
            if data[at] == mark:
                begins[row] = at + 1
                break
    return begins
