"""PartitionWriter: sends the commands that store jobs, in fenced batches, and remembers in the target how far it came.

A migration is written in partitions: the local engine has one, Spark one per task. A partition's hash in the target holds

    token         raised by whoever opens the partition: an older opener's batches are refused from then on
    done          1 when all of it is written
    lane:<tag>    how many jobs the partition has with this hash tag, when it is done

A transaction of a cluster touches one slot, so there a partition has one more hash for each hash tag of its jobs, which lies in
the slot of the tag; on one server there is no tag, and the partition's own hash serves. It tells the progress with the tag:

    token         of the opener that may write
    count         how many of the partition's jobs with this tag are written; set in the same transaction as the jobs themselves
    digest        of the identities of those jobs, in order
    run, stood    the run that came last, and what ``count`` was when it first did

so a partition that is opened again, after a kill or by a second attempt, goes on exactly where it stood, and no job is ever
written twice: a job that a worker of the target has taken meanwhile does not come back. All commands of one job go in one
transaction, so no job is ever half written. Every reply is checked. Used by the local engine and inside Spark executors.

    with open_partition(store, run, "0007") as writer:
        for job in jobs_in_a_fixed_order:
            writer.put(identity(job), family.write(job, target))
        writer.close()
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from importlib.resources import files
from itertools import groupby
from typing import Any

from ..schema.connection.pipeline import PackedCommands, mapping
from ..schema.errors import MigrationRefused, StaleWriter
from ..schema.family import Command
from ..schema.text import to_text
from .fence import Condition, PartlyApplied
from .packed_jobs import PackedJobs, marked
from .run import FINISH, SLOT_FIELD, Run, journal_glob
from .store import Store

BATCH_COMMANDS = 500
BATCH_BYTES = 1 << 20
"""A batch is sent when it has this many commands or bytes: large enough for the rate, small enough for others."""
SCRIPTS = 8
"""Of the scripts that end a migration, so many make a batch: each may take some milliseconds."""
PENDING_BYTES = 64 << 20
"""What a partition may hold back for all slots together: many queues have many, most of them far from a full batch."""


class SlotWriter:
    """What one opener of a partition writes with one hash tag, in one slot of a cluster. Made by PartitionWriter."""

    def __init__(self, store: Store, run: Run, partition: str, tag: bytes | None, token: int) -> None:
        self._store = store
        self._key = run.progress_key(tag, partition)
        self._fence = (*run.slot_fence(tag), Condition(self._key, "token", b"%d" % token))
        self.known, self._known_digest, self._stood = _open_slot(store, run, partition, tag, token)
        """``known``: how many jobs are written, as far as this opener knows."""
        self.count = 0
        self._digest = hashlib.blake2b(digest_size=16)
        self._packed: list[PackedCommands] = []
        self._commands = 0
        self._bytes = 0

    @property
    def size(self) -> int:
        """How many bytes are put and not yet sent."""
        return self._bytes

    @property
    def is_full(self) -> bool:
        """Whether it is time for ``flush``."""
        return self._commands >= BATCH_COMMANDS or self._bytes >= BATCH_BYTES

    def put(self, identity: bytes, commands: Sequence[Command]) -> bool:
        """See PartitionWriter.put; sends nothing. Raises ValueError for another job than was written here."""
        self._pass(marked(identity), 1)
        if self.count > self.known:
            self._add([PackedCommands.of(commands)], len(commands))
        return self.count > self._stood

    def put_many(self, jobs: PackedJobs) -> int:
        """See PartitionWriter.put_many. Raises ValueError as ``put``."""
        row = min(max(self.known - self.count, 0), len(jobs))
        stood = min(max(self._stood - self.count, 0), len(jobs))
        if row:
            self._pass(jobs.slice(0, row)[0], row)
        while row < len(jobs):
            end = jobs.until_full(row, BATCH_COMMANDS - self._commands, BATCH_BYTES - self._bytes)
            identities, packed = jobs.slice(row, end)
            self._pass(identities, end - row)
            self._add(packed, jobs.numbers[end] - jobs.numbers[row])
            if self.is_full:
                self.flush()
            row = end
        return stood

    def _pass(self, identities: bytes | memoryview, jobs: int) -> None:
        """Takes note of so many jobs, of which all are known or none. Raises ValueError where others are."""
        self.count += jobs
        self._digest.update(identities)
        if self.count == self.known and self._digest.hexdigest().encode() != self._known_digest:
            raise ValueError(bytes(identities[:100]))

    def _add(self, packed: Sequence[PackedCommands], commands: int) -> None:
        """Adds what counts as so many commands."""
        self._packed += packed
        self._commands += commands
        self._bytes += sum(len(each.data) for each in packed)

    def flush(self) -> None:
        """Sends what was put."""
        if not self._packed:
            return
        before = (self.known, self._known_digest)
        after = (self.count, self._digest.hexdigest().encode())
        try:
            self._apply(before[0], [*self._packed, self._progress(*after)])
        except PartlyApplied:
            # The progress was applied with the rest: take it back, so that the whole batch is sent again one day.
            self._apply(after[0], [self._progress(*before)])
            raise
        self.known, self._known_digest = after
        self._packed.clear()
        self._commands = self._bytes = 0

    def _apply(self, known: int, commands: Sequence[PackedCommands]) -> None:
        # A failover that took back what the server had confirmed shows in the count.
        self._store.apply_packed((*self._fence, Condition(self._key, "count", b"%d" % known)), commands)

    def _progress(self, count: int, digest: bytes | None) -> PackedCommands:
        return PackedCommands.of([("HSET", self._key, "count", count, "digest", digest or b"")])


class PartitionWriter:
    """A partition that is open for writing. Made by ``open_partition``; not for several threads."""

    def __init__(self, store: Store, run: Run, partition: str) -> None:
        self._store = store
        self._run = run
        self._name = partition
        self._key = run.partition_key(partition)
        self._token, fields = store.apply(run.fence, [("HINCRBY", self._key, "token", 1), ("HGETALL", self._key)])
        self._fence = (*run.fence, Condition(self._key, "token", b"%d" % self._token))
        stored = mapping(fields)
        self._is_done = b"done" in stored
        self._closed = {name: int(count) for name, count in stored.items() if name.startswith(SLOT_FIELD)}
        self._slots: dict[bytes | None, SlotWriter] = {}
        self.pending = 0
        """How many bytes are put and not yet sent."""

    def put(self, identity: bytes, commands: Sequence[Command]) -> bool:
        """Stores one job, sooner or later. False: an earlier run has stored it.

        Callers put the same jobs in the same order each time the partition is opened; what stands already is not sent again.
        Raises MigrationRefused when they are others, StaleWriter when somebody else has opened the partition since, ServerError
        when the server refuses, UsageError when a cluster can't store the job as one.
        """
        tag = self._store.tag(commands)
        slot = self._slots.get(tag) or self._open(tag)
        before = slot.size
        try:
            is_new = slot.put(identity, commands)
        except ValueError:
            raise self._changed() from None
        if self._is_done and slot.size:
            raise self._changed()
        if slot.is_full:
            slot.flush()
        self._hold(slot.size - before)
        return is_new

    def put_many(self, tag: bytes | None, jobs: PackedJobs) -> int:
        """Stores many jobs, whose commands have the tag, as ``put`` does each. Returns how many of the first ones, which an
        earlier run has stored, it leaves out.
        """
        slot = self._slots.get(tag) or self._open(tag)
        if self._is_done and slot.count + len(jobs) > slot.known:
            raise self._changed()
        before = slot.size
        try:
            stood = slot.put_many(jobs)
        except ValueError:
            raise self._changed() from None
        self._hold(slot.size - before)
        return stood

    def _hold(self, more: int) -> None:
        self.pending += more
        if self.pending >= PENDING_BYTES:
            self.flush()

    def flush(self) -> None:
        """Sends what was put."""
        for slot in self._slots.values():
            slot.flush()
        self.pending = 0

    def close(self) -> None:
        """Sends the rest and marks the partition as done, if it was not."""
        if any(slot.count < slot.known for slot in self._slots.values()):
            raise self._changed()
        self.flush()
        counts = {_slot_field(tag): slot.count for tag, slot in self._slots.items()}
        if self._is_done:
            if counts != self._closed:
                raise self._changed()
            return
        if not self._closed.keys() <= counts.keys():
            raise self._changed()
        words = [word for pair in counts.items() for word in pair]
        self._store.apply(self._fence, [("HSET", self._key, *words, "done", 1)])
        self._is_done, self._closed = True, counts

    def _open(self, tag: bytes | None) -> SlotWriter:
        """Opens a slot, of which the partition must know first: whoever ends the migration shuts all slots that partitions
        know."""
        self._store.apply(self._fence, [("HSETNX", self._key, _slot_field(tag), 0)])
        self._closed.setdefault(_slot_field(tag), 0)
        slot = self._slots[tag] = SlotWriter(self._store, self._run, self._name, tag, self._token)
        return slot

    def _changed(self) -> MigrationRefused:
        return MigrationRefused(
            f"the source has changed since the migration was interrupted (part {self._name}), so it can't go on there; "
            f"delete the target's keys and the keys {journal_glob(self._run.epoch)}, then migrate again"
        )


def _slot_field(tag: bytes | None) -> bytes:
    return SLOT_FIELD + (tag or b"")


def _open_slot(store: Store, run: Run, partition: str, tag: bytes | None, token: int) -> tuple[int, bytes | None, int]:
    """Opens a slot for a partition; returns its count and digest, and the count when this run first came. Raises StaleWriter."""
    keys = (run.fence_key(tag), run.progress_key(tag, partition))
    makes_fence = 0 if tag is None else 1
    (entered,) = store.ask([("EVAL", _open_slot_script(), len(keys), *keys, run.token, token, makes_fence)])
    if entered is None:
        raise StaleWriter(f"another writer took over, or the migration is finished ({to_text(keys[1])}); this one stops")
    count, digest, stood = entered
    return int(count), digest, int(stood)


@cache
def _open_slot_script() -> str:
    return files(__package__).joinpath("lua", "open_slot.lua").read_text("utf-8")


@contextlib.contextmanager
def open_partition(store: Store, run: Run, partition: str) -> Iterator[PartitionWriter]:
    """Opens a partition for writing, and shuts out whoever had it open before.

    What was put and not closed is lost when the block ends: the next opening puts it again. Raises StaleWriter when ``run``
    is not the current one any more.
    """
    yield PartitionWriter(store, run, partition)


def send(store: Store, run: Run, commands: Sequence[Command]) -> list[bytes]:
    """Sends commands in fenced batches, for what belongs to no partition: registries, counters, wake-up tokens.

    Those with the same tag go in their order. Returns the tags.
    """
    by_tag: dict[bytes | None, list[Command]] = {}
    for command in commands:
        by_tag.setdefault(store.tag([command]), []).append(command)
    for tag, those in by_tag.items():
        if tag is not None:
            _open_slot(store, run, FINISH, tag, 1)
        send_last(those, partial(store.apply, run.slot_fence(tag)))
    return [tag for tag in by_tag if tag is not None]


def send_last(commands: Sequence[Command], apply: Callable[[Sequence[Command]], Sequence[Any]]) -> None:
    """Sends a family's last commands in batches, and its scripts again while they have more to do (``KeyFamily.finish``)."""
    for are_scripts, group in groupby(commands, lambda command: command[0] == "EVAL"):
        those, most = list(group), SCRIPTS if are_scripts else BATCH_COMMANDS
        for start in range(0, len(those), most):
            batch = those[start : start + most]
            while batch:
                replies = apply(batch)
                batch = [command for command, reply in zip(batch, replies, strict=True) if are_scripts and reply == 1]
