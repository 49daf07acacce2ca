"""The key names of the native family: every key of one queue, and the keys that belong to no queue.

All keys of a queue share the hash tag ``{queue}``, so one script touches one slot and Redis Cluster works. This file only
builds names; it never talks to Redis and never parses (that is ``schema/keys.py``). Called by ``scripts/``, the family's reader
and writer, and the transport.
"""

from __future__ import annotations

from attrs import field, frozen

from ..errors import UsageError
from ..text import to_bytes

DEFAULT_PREFIX = "ferryman"

OUTBOX_NUMBERS_PER_MS = 100
"""A dead letter's number in the outbox is at least this times the moment of its death, ms (``scripts/lua/_queue.lua``)."""

_ESCAPES = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})


def check_prefix(prefix: str) -> str:
    """The prefix itself, if key names can begin with it.

    Raises UsageError for an empty one, and for one with a brace: Redis Cluster reads the first ``{…}`` of a key, so a brace
    here would take the place of the queue's own hash tag.
    """
    if not prefix or "{" in prefix or "}" in prefix:
        raise UsageError(f"prefix {prefix!r} can't be used: it must not be empty and must not contain '{{' or '}}'")
    return prefix


def escape(name: str) -> str:
    """A queue's or exchange's name as it stands inside a hash tag: only ``%``, ``{`` and ``}`` are percent-encoded."""
    return name.translate(_ESCAPES)


def unescape(tag: str) -> str:
    """The inverse of ``escape``. Text that ``escape`` never writes passes as it is; ``is_escaped`` says which."""
    return tag.replace("%7B", "{").replace("%7D", "}").replace("%25", "%")


def is_escaped(tag: str) -> bool:
    """Whether ``escape`` could have produced this text, that is, whether ``unescape`` loses nothing."""
    return escape(unescape(tag)) == tag


@frozen
class QueueKeys:
    """The keys of one queue, as bytes. ``KEYS`` of every queue script is ``fixed``, in that order."""

    prefix: str
    queue: str
    base: bytes = field(init=False, repr=False)
    fixed: tuple[bytes, ...] = field(init=False, repr=False)
    """What every queue script gets as KEYS[1] to KEYS[14]; ``scripts/lua/_queue.lua`` gives them their names."""

    def __attrs_post_init__(self) -> None:
        check_prefix(self.prefix)
        if not self.queue:
            raise UsageError("a queue's name must not be empty")
        base = to_bytes(f"{self.prefix}:{{{escape(self.queue)}}}:")
        object.__setattr__(self, "base", base)
        prefixes = (self.job_prefix, self.held_prefix, self.needs_prefix, self.unblocks_prefix, self.unique_prefix)
        object.__setattr__(self, "fixed", self.plain + prefixes)

    @property
    def plain(self) -> tuple[bytes, ...]:
        """The keys that a queue has one of: all but those of single jobs, consumers and producers."""
        most = (self.meta, self.waiting, self.scheduled, self.consumers, self.dead, self.done, self.wake, self.blocked)
        return (*most, self.outbox)

    @property
    def meta(self) -> bytes:
        """Hash: schema version, sequence, declared arguments, counters."""
        return self.base + b"meta"

    @property
    def waiting(self) -> bytes:
        """Sorted set: id by rank and sequence (``scripts/waiting_score.py``)."""
        return self.base + b"waiting"

    @property
    def scheduled(self) -> bytes:
        """Sorted set: id by due time, ms."""
        return self.base + b"scheduled"

    @property
    def consumers(self) -> bytes:
        """Sorted set: consumer by the end of its lease, ms."""
        return self.base + b"consumers"

    @property
    def dead(self) -> bytes:
        """Sorted set: id by the time it was given up, ms."""
        return self.base + b"dead"

    @property
    def done(self) -> bytes:
        """Sorted set: id by the time it was acked, ms; only with a retention."""
        return self.base + b"done"

    @property
    def wake(self) -> bytes:
        """List: at most one token, which wakes one idle consumer and carries no job."""
        return self.base + b"wake"

    @property
    def blocked(self) -> bytes:
        """Set: ids that wait for other jobs."""
        return self.base + b"blocked"

    @property
    def outbox(self) -> bytes:
        """Sorted set: ids of dead jobs that are still to go to the queue's dead letter exchange, by a growing number."""
        return self.base + b"outbox"

    @property
    def moves(self) -> bytes:
        """Sorted set: ids of dead jobs that are on the way to another queue, by a growing number.

        Scripts make its name of ``meta``.
        """
        return self.base + b"moves"

    @property
    def letters(self) -> bytes:
        """Sorted set: ids of dead jobs that count for the limits of dead letters, by the time they were given up, ms.

        Migrated dead jobs do not count. Scripts make its name of ``meta``.
        """
        return self.base + b"letters"

    @property
    def unreported(self) -> bytes:
        """Sorted set: ids of dead tasks whose end no worker has reported, by the time, ms, from which one may claim them.

        Scripts make its name of ``meta``.
        """
        return self.base + b"unreported"

    @property
    def job_prefix(self) -> bytes:
        """What every job's hash begins with."""
        return self.base + b"job:"

    @property
    def held_prefix(self) -> bytes:
        """What every consumer's sorted set of held jobs begins with."""
        return self.base + b"held:"

    @property
    def needs_prefix(self) -> bytes:
        """What the sets of what a blocked job waits for begin with."""
        return self.base + b"needs:"

    @property
    def unblocks_prefix(self) -> bytes:
        """What the sets of who waits for a job begin with."""
        return self.base + b"unblocks:"

    @property
    def unique_prefix(self) -> bytes:
        """What the strings that hold dedup keys begin with."""
        return self.base + b"unique:"

    def job(self, job_id: str) -> bytes:
        """Hash: one job."""
        return self.job_prefix + to_bytes(job_id)

    def held(self, consumer: str) -> bytes:
        """Sorted set: the ids that a consumer has and has not acked, by their score in waiting."""
        return self.held_prefix + to_bytes(consumer)

    def publisher(self, producer: str) -> bytes:
        """String with a TTL: what a producer's last publish stored. No live data: losing it loses no job."""
        return self.base + b"publisher:" + to_bytes(producer)

    def batch(self, batch: str) -> bytes:
        """Set with a TTL: the ids that a batch has stored; a string when it is complete. No live data: losing it loses no job."""
        return self.base + b"batch:" + to_bytes(batch)

    def needs(self, job_id: str) -> bytes:
        """Set: the ids that a blocked job waits for."""
        return self.needs_prefix + to_bytes(job_id)

    def unblocks(self, job_id: str) -> bytes:
        """Set: the ids that wait for this job."""
        return self.unblocks_prefix + to_bytes(job_id)

    def tag(self, tag: str) -> bytes:
        """Set: the ids that carry a tag."""
        return self.base + b"tag:" + to_bytes(tag)

    def unique(self, key: str) -> bytes:
        """String: the id of the job that holds a dedup key. With a TTL, if it is held for a time, whatever becomes of the job."""
        return self.unique_prefix + to_bytes(key)

    @property
    def times(self) -> bytes:
        """String: how long jobs have waited and run, as numbers of 64 bits (``scripts/lua/_history.lua``)."""
        return self.base + b"times"

    @property
    def history(self) -> bytes:
        """Hash with a TTL: the open slots of the queue's history."""
        return self.base + b"history"

    def slots(self, minutes: int) -> bytes:
        """List with a TTL: the closed slots of so many minutes each."""
        return self.base + b"history:%d" % minutes


def queues(prefix: str) -> bytes:
    """Set: the declared queues that last (those without ``x-expires``)."""
    return to_bytes(f"{check_prefix(prefix)}:queues")


def forwarding(prefix: str) -> bytes:
    """Set: the queues with a dead letter exchange, which have to be looked at although nobody may consume them."""
    return to_bytes(f"{check_prefix(prefix)}:forwarding")


def unroutable(prefix: str) -> bytes:
    """Hash: exchange -> how many of its messages no queue wanted."""
    return to_bytes(f"{check_prefix(prefix)}:unroutable")


def exchange(prefix: str, name: str) -> bytes:
    """Hash: binding -> expiry, plus the version that route caches check."""
    return to_bytes(f"{check_prefix(prefix)}:exchange:{name}")


def fanout(prefix: str, name: str) -> bytes:
    """Stream: the messages broadcast on a fanout exchange. Tagged, because one script writes it and its cursors."""
    return to_bytes(f"{check_prefix(prefix)}:fanout:{{{escape(name)}}}")


def fanout_cursors(prefix: str, name: str) -> bytes:
    """Hash: bound queue -> the last stream id it has read, and when the queue expires."""
    return fanout(prefix, name) + b":cursors"


def wake(prefix: str, connection: str) -> bytes:
    """List: wakes one connection from its blocking wait (a cancel, a new queue, the shutdown)."""
    return to_bytes(f"{check_prefix(prefix)}:wake:{connection}")
