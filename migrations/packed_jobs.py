"""PackedJobs: jobs to be written, many at once, as bytes that nobody takes apart; and what identifies a job in a digest.

Pure. Made by Spark's tasks, read by partition_writer.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import chain

from attrs import frozen

from ..schema.connection.pipeline import PackedCommands
from ..schema.job import Job
from ..schema.text import to_bytes


def identity(job: Job) -> bytes:
    """What the digest knows a job by: should it be another one when a partition is opened again, the source has changed."""
    before, after = around_id(job)
    return before + to_bytes(job.id) + after


def around_id(job: Job) -> tuple[bytes, bytes]:
    """What stands before the id and after it in the identities of all jobs of this queue and state."""
    return to_bytes(job.queue) + b"\0", f"\0{job.state}".encode()


@frozen(eq=False)
class PackedMembers:
    """Those of some jobs that become members of one zset: one command for many takes less of the server than one for each."""

    place: bytes
    rows: Sequence[int]
    """Of the jobs, in ascending order."""
    words: memoryview
    """Score and member of each, as they go over the wire."""
    bounds: Sequence[int]
    """As in PackedJobs."""

    def slice(self, start: int, end: int) -> tuple[int, list[PackedCommands]]:
        """How many of the jobs from one up to another there are, and the command that adds them, if there are any."""
        first, last = bisect_left(self.rows, start), bisect_left(self.rows, end)
        if first == last:
            return 0, []
        words = bytes(self.words[self.bounds[first] : self.bounds[last]])
        head = b"*%d\r\n$4\r\nZADD\r\n$%d\r\n%b\r\n" % (2 + 2 * (last - first), len(self.place), self.place)
        return last - first, [PackedCommands(head + words, 1)]


@frozen(eq=False)
class PackedJobs:
    """Jobs to be put at once, in their order. Bounds: what belongs to a job begins at its own, and ends at that of the next."""

    identities: memoryview
    """As ``marked`` has them."""
    identity_bounds: Sequence[int]
    commands: memoryview
    """As they go over the wire."""
    command_bounds: Sequence[int]
    numbers: Sequence[int]
    """Bounds too, in commands; to become a member counts as one."""
    members: Sequence[PackedMembers] = ()

    def __len__(self) -> int:
        return len(self.numbers) - 1

    def until_full(self, start: int, commands: int, size: int) -> int:
        """The end of as many jobs, from ``start`` on, as it takes to have so many commands or bytes; of one at least."""
        full = bisect_left(self.numbers, self.numbers[start] + commands)
        large = bisect_left(self.command_bounds, self.command_bounds[start] + size)
        return min(max(min(full, large), start + 1), len(self))

    def slice(self, start: int, end: int) -> tuple[memoryview, list[PackedCommands]]:
        """The identities and the commands of the jobs from one up to another."""
        (first, last), (begin, stop) = ((bounds[start], bounds[end]) for bounds in (self.identity_bounds, self.command_bounds))
        added = [members.slice(start, end) for members in self.members]
        number = self.numbers[end] - self.numbers[start] - sum(members for members, _ in added)
        return self.identities[first:last], [
            PackedCommands(self.commands[begin:stop], number),
            *chain.from_iterable(packed for _, packed in added),
        ]


def marked(identity: bytes) -> bytes:
    """An identity as the digest takes it."""
    return b"%d:" % len(identity) + identity
