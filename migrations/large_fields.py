"""Large fields: what is left out where jobs are read to be shown: a payload of 200 MB helps nobody who looks at a list.

Inside a block of ``without_large_fields`` whole hashes are measured before they are read, and of one that is too large only its
small fields are. What was left out is told with its size. Called by ``atomic_read.py``; the block is made by the web page.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar

from attrs import define, field

from ..schema.connection.pipeline import PipelineConnection
from ..schema.key_refs import KeyRef


@define
class LeftOut:
    """The fields that were too large, by their keys, with their sizes in bytes."""

    most_bytes: int
    fields: dict[bytes, dict[bytes, int]] = field(factory=dict)

    def of_job(self, job_id: bytes) -> tuple[bytes, bytes, int] | None:
        """The key, the field and the size of the largest one of a job's record; None where nothing of it was left out."""
        own = [key for key in self.fields if key.endswith(job_id) and not key[: len(key) - len(job_id)][-1:].isalnum()]
        found = [(size, key, name) for key in own for name, size in self.fields[key].items()]
        size, key, name = max(found, default=(0, b"", b""))
        return (key, name, size) if found else None


_limit: ContextVar[LeftOut | None] = ContextVar("ferryman_large_fields", default=None)


@contextlib.contextmanager
def without_large_fields(most_bytes: int) -> Iterator[LeftOut]:
    """For the length of the block this thread reads no hash of more bytes whole."""
    left_out = LeftOut(most_bytes)
    token = _limit.set(left_out)
    try:
        yield left_out
    finally:
        _limit.reset(token)


def small_fields(pipe: PipelineConnection, refs: Sequence[KeyRef]) -> Mapping[bytes, tuple[bytes, ...]]:
    """For each of these whole hashes that is too large, the names of its fields that are not. Nothing outside of a block.

    Where the user may not ask for memory, the fields' lengths are asked for at once.
    """
    left_out = _limit.get()
    if left_out is None:
        return {}
    keys = list(dict.fromkeys(ref.key for ref in refs if ref.redis_type == "hash" and not ref.items))
    usages = pipe.call([("MEMORY", "USAGE", key, "SAMPLES", 0) for key in keys])
    # What is no number is an error: measured in the other way.
    most = left_out.most_bytes
    large = [key for key, usage in zip(keys, usages, strict=True) if usage is not None and not _is_below(usage, most)]
    found: dict[bytes, tuple[bytes, ...]] = {}
    names = [reply if isinstance(reply, list) else [] for reply in pipe.call([("HKEYS", key) for key in large])]
    for key, those in zip(large, names, strict=True):
        lengths = [size if isinstance(size, int) else 0 for size in pipe.call([("HSTRLEN", key, name) for name in those])]
        sizes = dict(zip(those, lengths, strict=True))
        too_large = {name: size for name, size in sizes.items() if size > most // 2}
        if too_large:
            left_out.fields[key] = too_large
            found[key] = tuple(name for name in those if name not in too_large)
    return found


def _is_below(usage: object, most: int) -> bool:
    return isinstance(usage, int) and usage <= most
