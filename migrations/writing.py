"""Writing: sends the commands that store jobs, in fenced batches, and remembers in the target how far it came.

A migration is written in parts: the local engine has one, Spark one per task. A part's hash in the target holds

    token     raised by whoever opens the part: an older opener's batches are refused from then on
    count     how many jobs are written; set in the same transaction as the jobs themselves
    digest    of the identities of those jobs, in order
    record    what the engine wanted remembered when the part was done; present only then

so a part that is opened again, after a kill or by a second attempt, goes on exactly where it stood, and no job is ever
written twice: a job that a worker of the target has taken meanwhile does not come back. All commands of one job go in one
transaction, so no job is ever half written. Every reply is checked. Used by the local engine and inside Spark executors.

    with open_part(client, run, "0007") as part:
        if part.record is None:
            for job in jobs_in_a_fixed_order:
                part.put(identity(job), family.write(job, target))
            part.close({"written": part.written})
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

import redis
from attrs import frozen

from ..schema.errors import MigrationRefused
from ..schema.family import Command
from ..schema.job import Job
from ..schema.text import to_bytes
from .fence import Condition, Fence, PartlyApplied, transact
from .wire import Wire, wire

JOURNAL = "ferryman-migration"
"""First word of every key that a migration keeps for itself."""

BATCH_COMMANDS = 500
BATCH_BYTES = 1 << 20
"""A batch is sent when it has this many commands or bytes of values: large enough for the rate, small enough for others."""


@frozen
class Run:
    """One run of a migration, made by ``journal.begin``. A plain value: it travels to executors."""

    epoch: str
    token: int

    @property
    def key(self) -> bytes:
        """The journal's hash."""
        return journal_key(self.epoch)

    @property
    def fence(self) -> Fence:
        """Holds until another run takes over, or this one is finished."""
        return (Condition(self.key, "run", b"%d" % self.token),)

    def part_key(self, part: str) -> bytes:
        """The hash of one part."""
        return self.key + b":part:" + to_bytes(part)


def journal_key(epoch: str) -> bytes:
    """The hash in the target's database that knows everything about the migration of this epoch."""
    return f"{JOURNAL}:{epoch}".encode()


def identity(job: Job) -> bytes:
    """What the digest knows a job by: should it be another one when a part is opened again, the source has changed."""
    return to_bytes(f"{job.queue}\0{job.id}\0{job.state}")


class Part:
    """A part that is open for writing. Made by ``open_part``; not for several threads."""

    def __init__(self, line: Wire, run: Run, part: str) -> None:
        self._line = line
        self._key = run.part_key(part)
        self._name = part
        token, count, digest, record = transact(line, run.fence, self._opening())
        self._fence = (*run.fence, Condition(self._key, "token", b"%d" % token))
        self._known = int(count or 0)
        self._known_digest = digest
        self.record: dict[str, Any] | None = None if record is None else json.loads(record)
        """What ``close`` was given, if the part is done already: then there is nothing to put."""
        self.written = 0
        """Jobs that this opening has put, without those that stood there already."""
        self._count = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self._commands: list[Command] = []
        self._bytes = 0

    def put(self, identity: bytes, commands: Sequence[Command]) -> bool:
        """Stores one job, sooner or later. False: an earlier opening has stored it.

        Callers put the same jobs in the same order each time the part is opened. Raises MigrationRefused when that is not so,
        StaleWriter when somebody else has opened the part since, ServerError when the server refuses.
        """
        self._count += 1
        self._digest.update(b"%d:" % len(identity) + identity)
        if self._count <= self._known:
            if self._count == self._known:
                self._compare()
            return False
        self.written += 1
        self._commands.extend(commands)
        for command in commands:
            for word in command:
                if isinstance(word, bytes):
                    self._bytes += len(word)
        if len(self._commands) >= BATCH_COMMANDS or self._bytes >= BATCH_BYTES:
            self.flush()
        return True

    def flush(self) -> None:
        """Sends what was put."""
        if not self._commands:
            return
        before = (self._known, self._known_digest)
        after = (self._count, self._digest.hexdigest().encode())
        try:
            transact(self._line, self._fence, [*self._commands, self._progress(*after)])
        except PartlyApplied:
            # The progress was applied with the rest: take it back, so that the whole batch is sent again one day.
            transact(self._line, self._fence, [self._progress(*before)])
            raise
        self._known, self._known_digest = after
        self._commands.clear()
        self._bytes = 0

    def close(self, record: dict[str, Any]) -> None:
        """Sends the rest and marks the part as done."""
        if self._count < self._known:
            raise self._changed()
        self.flush()
        transact(self._line, self._fence, [("HSET", self._key, "record", json.dumps(record))])
        self.record = record

    def _opening(self) -> list[Command]:
        key = self._key
        return [("HINCRBY", key, "token", 1), *(("HGET", key, name) for name in ("count", "digest", "record"))]

    def _progress(self, count: int, digest: bytes | None) -> Command:
        return ("HSET", self._key, "count", count, "digest", digest or b"")

    def _compare(self) -> None:
        if self._digest.hexdigest().encode() != self._known_digest:
            raise self._changed()

    def _changed(self) -> MigrationRefused:
        journal = self._key.split(b":part:")[0].decode()
        return MigrationRefused(
            f"the source has changed since the migration was interrupted (part {self._name}), so it can't go on there; "
            f"delete the target's keys and the keys {journal}*, then migrate again"
        )


@contextlib.contextmanager
def open_part(client: redis.Redis, run: Run, part: str) -> Iterator[Part]:
    """Opens a part for writing, on a connection of its own, and shuts out whoever had it open before.

    What was put and not closed is lost when the block ends: the next opening puts it again. Raises StaleWriter when ``run``
    is not the current one any more.
    """
    with wire(client) as line:
        yield Part(line, run, part)


def send(client: redis.Redis, fence: Fence, commands: Sequence[Command]) -> None:
    """Sends commands in fenced batches, for what belongs to no part: registries, counters, wake-up tokens."""
    with wire(client) as line:
        for start in range(0, len(commands), BATCH_COMMANDS):
            transact(line, fence, commands[start : start + BATCH_COMMANDS])
