"""Slots: which keys a command names, and the hash tag by which a Redis Cluster keeps them together. Pure. Called by store.py.

A transaction of a cluster touches one slot. All keys with the same hash tag share one, so commands that name one tag can be
sent together, and a key of ours with that tag joins them.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..schema.errors import UsageError
from ..schema.family import Command, KeyFamily
from ..schema.keys import hash_tag
from ..schema.text import show, to_bytes

MANY_KEYS = frozenset({"DEL", "UNLINK", "EXISTS"})
SCRIPTS = frozenset({"EVAL", "EVALSHA"})
NO_KEY = frozenset({"PUBLISH"})


def keys_of(command: Command) -> tuple[bytes, ...]:
    """The keys that one of the writers' commands names."""
    name, *words = command
    if name in SCRIPTS:
        words = words[2 : 2 + int(words[1])]
    elif name in NO_KEY:
        words = []
    elif name not in MANY_KEYS:
        words = words[:1]
    return tuple(to_bytes(word) if isinstance(word, str) else bytes(word) for word in words)  # type: ignore[arg-type]


def common_tag(commands: Iterable[Command]) -> bytes:
    """The tag of all keys of the commands. Raises UsageError when they have several: a cluster can't apply them together."""
    tags = {hash_tag(key): key for command in commands for key in keys_of(command)}
    if len(tags) == 1:
        ((tag, key),) = tags.items()
        if b"}" not in tag:
            return tag
        raise UsageError(f"the key {show(key, 80)} can't be written to a cluster: no other key is sure to share its slot")
    names = " and ".join(show(key, 80) for key in sorted(tags.values())[:2]) or "commands without a key"
    raise UsageError(f"{names} can't be written to a cluster together: they lie in several slots")


def must_fit(family: KeyFamily, prefix: str) -> None:
    """Raises UsageError, with what to write instead, for a keyspace whose jobs would lie across the slots of a cluster."""
    if not family.has_hash_tags(prefix):
        tagged = f"{{{prefix or family.name}}}"
        raise UsageError(
            f"the keys of one {family.name} job lie in several slots of a cluster, which can't store them as one; give the "
            f"target a prefix with a hash tag, which keeps all in one slot: …?family={family.name}&prefix={tagged}"
        )
