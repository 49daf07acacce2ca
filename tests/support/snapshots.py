"""Snapshot files that servers write of keys of every type in every encoding that a queue's keys can have."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random

import redis
from ferryman.migrations.rdbfile import RdbFile
from ferryman.schema.fact import Entry

from .servers import Server

NOW = 1_800_000_000_000


def fill(client: redis.Redis, each: int = 400) -> None:
    """``each`` keys of each of seven sorts."""
    random = Random(7)
    pipeline = client.pipeline(transaction=False)
    for number in range(each):
        size = random.choice((1, 3, 200))
        words = [random.choice((str(random.randrange(10**9)), "x" * random.randrange(100), "ü✓")) for _ in range(size)]
        pipeline.set(f"s:{number}", random.randbytes(random.choice((0, 5, 300, 20_000))))
        pipeline.rpush(f"l:{number}", *words)
        pipeline.sadd(f"e:{number}", *words)
        pipeline.sadd(f"i:{number}", *(str(random.randrange(10**6)) for _ in range(size)))
        pipeline.zadd(f"z:{number}", {f"{word}{index}": random.choice((1.5, -3, 1e300)) for index, word in enumerate(words)})
        pipeline.hset(f"h:{number}", mapping={f"f{index}": word for index, word in enumerate(words)})
        pipeline.set(f"t:{number}", "x" * 5000, px=10**9)
    pipeline.execute()


def saved(client: redis.Redis, server: Server, folder: Path) -> Path:
    """The server's own snapshot, copied."""
    client.save()
    path = folder / "saved.rdb"
    path.write_bytes((server.folder / "dump.rdb").read_bytes())
    return path


def plain(entries: Iterable[Entry]) -> dict[bytes, tuple[str, object]]:
    """Types and values by key; a set's members in a fixed order."""
    return {e.key: (e.redis_type, sorted(e.value) if e.redis_type == "set" else e.value) for e in entries}


def read(path: Path, db: int = 0, now_ms: int = NOW) -> dict[bytes, tuple[str, object]]:
    """The keys of a file."""
    with RdbFile(path) as file:
        return plain(entry for batch in file.entries(db, now_ms) for entry in batch)
