"""Captured keyspaces as test material: their entries, what is known about them, and the way into a server."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import redis
from attrs import frozen
from ferryman.compat.samples import commands, read_capture
from ferryman.schema.fact import Entry

DATA = Path(__file__).parent.parent / "data"


@frozen(eq=False)
class Capture:
    """One captured keyspace."""

    system: str
    name: str
    expected: dict[str, Any]
    """What the original software says, as in ``<name>.expected.json``."""

    @property
    def prefix(self) -> str:
        prefix: str = self.expected["prefix"]
        return prefix

    @property
    def captured_at_ms(self) -> int:
        """The moment that rules must compare with."""
        moment: int = self.expected["captured_at_ms"]
        return moment

    @property
    def rdb(self) -> Path:
        """The same keyspace as a snapshot file."""
        return DATA / self.system / f"{self.name}.rdb"

    def entries(self) -> Iterator[Entry]:
        """Every key. Cases that are shipped with the family are not kept twice."""
        path = DATA / self.system / f"{self.name}.jsonl"
        if path.exists():
            return read_capture(path.read_text("utf-8").split("\n"))
        entries: Iterator[Entry] = import_module(f"ferryman.compat.{self.system}.samples").SAMPLES[self.name].entries()
        return entries

    def __str__(self) -> str:
        return f"{self.system}/{self.name}"


@cache
def captures(system: str) -> list[Capture]:
    """All captures of one system, by name."""
    files = sorted((DATA / system).glob("*.expected.json"))
    return [Capture(system, path.name.removesuffix(".expected.json"), json.loads(path.read_text("utf-8"))) for path in files]


def capture(system: str, name: str) -> Capture:
    """One capture. Raises StopIteration for an unknown one."""
    return next(each for each in captures(system) if each.name == name)


def load(entries: Iterable[Entry] | Capture, client: redis.Redis) -> None:
    """Writes entries into a server by plain commands. Times to live are left out, so that an expired lock stays to be seen."""
    pipeline = client.pipeline(transaction=False)
    for entry in entries.entries() if isinstance(entries, Capture) else entries:
        for words in commands(entry):
            pipeline.execute_command(*words)
    pipeline.execute()
