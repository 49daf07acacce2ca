"""Run: one run of a migration, and the names of the keys that it keeps in the target beside the jobs. Pure; a plain value that
travels to executors. Made by journal.py; the keys are described there and in partition_writer.py.
"""

from __future__ import annotations

from attrs import frozen

from ..schema.text import to_bytes
from .fence import Condition, Fence

JOURNAL = "ferryman-migration"
"""First word of every key that a migration keeps for itself."""
HOME = f"{JOURNAL}:{{journal}}"
"""Before the name of every key that belongs to no single slot. They share one, so that a transaction can name several."""
SLOT_FIELD = b"lane:"
"""Before a tag, in the fields of a partition's hash."""
FINISH = "finish"
"""In place of a partition's name, for what belongs to none."""


@frozen
class Run:
    """One run of a migration, made by ``journal.begin``. A plain value: it travels to executors."""

    epoch: str
    token: int

    @property
    def is_first(self) -> bool:
        """Whether no other run of this migration has written to the target, which was free of jobs when it began."""
        return self.token == 1

    @property
    def key(self) -> bytes:
        """The journal's hash."""
        return journal_key(self.epoch)

    @property
    def fence(self) -> Fence:
        """Holds until another run takes over, or this one is finished."""
        return (Condition(self.key, "run", b"%d" % self.token),)

    def partition_key(self, partition: str) -> bytes:
        """The hash of one partition."""
        return self.key + b":part:" + to_bytes(partition)

    def fence_key(self, tag: bytes | None) -> bytes:
        """The hash whose field ``run`` is the run that may write with this tag: in a cluster one in each slot."""
        return self.key if tag is None else self._there(tag) + b":fence"

    def slot_fence(self, tag: bytes | None) -> Fence:
        """As ``fence``, for what has this tag."""
        return (Condition(self.fence_key(tag), "run", b"%d" % self.token),)

    def progress_key(self, tag: bytes | None, partition: str) -> bytes:
        """The hash that tells how far a partition came with this tag: in a cluster one in each slot, else its own."""
        return self.partition_key(partition) if tag is None else self._there(tag) + b":lane:" + to_bytes(partition)

    def _there(self, tag: bytes) -> bytes:
        return b"%b:{%b}:%b" % (JOURNAL.encode(), tag, self.epoch.encode())


def journal_key(epoch: str) -> bytes:
    """The hash in the target's database that knows everything about the migration of this epoch."""
    return f"{HOME}:{epoch}".encode()


def journal_glob(epoch: str) -> str:
    """What all keys of the migration of this epoch look like, for people who give it up."""
    return f"{JOURNAL}:*:{epoch}*"


def is_of_journal(key: bytes) -> bool:
    """Whether a key is what some migration keeps for itself."""
    return key.startswith(JOURNAL.encode() + b":{")
