"""Survey: the questions asked of a database before anything is carried from it or to it.

Only reads, and works without any right beyond reading keys. Called by the engines and the command line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import redis

from ..schema.connection.address import Address
from ..schema.errors import KeyspaceNotFound
from ..schema.fact import Entry, FactKind
from ..schema.family import KeyFamily
from ..schema.text import show
from .scan import entries

FEW_KEYS = 10_000
"""So few keys may hold most of what a server has: queues of many jobs."""


def clock_ms(client: redis.Redis) -> int:
    """The server's time in Unix milliseconds: the only clock that all machines share."""
    seconds, microseconds = client.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


def size(client: redis.Redis) -> int:
    """How many keys the database of a client has. Asked of ``INFO``, which whoever reads may call, rather than of ``DBSIZE``."""
    try:
        databases = client.info("keyspace")
    except redis.exceptions.NoPermissionError:
        return int(client.dbsize())
    return _sizes(databases).get(_database(client), 0)


def memory(client: redis.Redis) -> int:
    """About how many bytes of the server's memory a database fills; 0 where the server doesn't say."""
    try:
        held, databases = client.info("memory").get("used_memory_dataset", 0), client.info("keyspace")
    except redis.exceptions.NoPermissionError:
        return 0
    sizes = _sizes(databases)
    keys, all_keys = sizes.get(_database(client), 0), sum(sizes.values())
    return int(held * min(1.0, keys / all_keys)) if keys > FEW_KEYS and all_keys else int(held)


def _sizes(databases: Mapping[str, Any]) -> dict[str, int]:
    """The number of keys of each database that has any, from ``INFO keyspace``."""
    return {name: int(counts.get("keys", 0)) for name, counts in databases.items() if isinstance(counts, dict)}


def _database(client: redis.Redis) -> str:
    return f"db{client.connection_pool.connection_kwargs.get('db') or 0}"


def must_read_in_parts(client: redis.Redis, glob: str) -> None:
    """Asks about a key by the commands that read a large keyspace in parts. Raises NoPermissionError for one not allowed."""
    key = glob.replace("*", "")
    commands = [("DBSIZE",), ("HRANDFIELD", key, 1), *((name, key) for name in ("HLEN", "HGETALL", "LLEN", "SCARD", "ZCARD"))]
    with client.pipeline(transaction=False) as pipe:
        for command in commands:
            pipe.execute_command(*command)
        replies = pipe.execute(raise_on_error=False)
    for reply in replies:
        if isinstance(reply, redis.exceptions.NoPermissionError):  # it may be there, of another type
            raise reply


def occupant(client: redis.Redis, family: KeyFamily, prefix: str) -> bytes | None:
    """A key of the keyspace that speaks of a job or makes no sense; None if it is free for a migration.

    Registries, counters and wake-up tokens don't count: workers of the target may have been started before there is work.
    """
    return first_occupant(entries(client, family, prefix), family, prefix)


def first_occupant(batches: Iterable[Iterable[Entry]], family: KeyFamily, prefix: str) -> bytes | None:
    """The same, of entries that were read already."""
    for batch in batches:
        for entry in batch:
            for fact in family.facts(entry, prefix):
                if fact.job_id is not None or fact.kind is FactKind.ODD:
                    return entry.key
    return None


def nothing_found(client: redis.Redis, address: Address) -> KeyspaceNotFound:
    """The error for a keyspace without a key; it tells what stands in the database instead."""
    missing = f"{address.display()}: no {address.family} keys under prefix {address.prefix!r} in database {address.db}"
    try:
        others, example = client.dbsize(), client.randomkey()
    except redis.exceptions.NoPermissionError:
        return KeyspaceNotFound(f"{missing}; check prefix, family and database number")
    if not others:
        return KeyspaceNotFound(f"{missing}, which is empty; check the server and the database number")
    shown = f", such as {show(example, 60)}" if isinstance(example, bytes) else ""
    return KeyspaceNotFound(f"{missing} (found {others} other keys{shown}); check prefix, family and database number")
