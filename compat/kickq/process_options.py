"""ProcessOptions: options of kickq's processes that no key tells of, so that the user must say them here as well.

They are parameters of the URL: ``…?family=kickq&purge_jobs=false``. Called by ``family.py`` and ``live.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from ...schema.errors import UsageError
from ...schema.text import parse_flag, show, to_bytes
from .record import PURGE_MS


@frozen
class ProcessOptions:
    """The options, with kickq's own defaults."""

    purge_jobs: bool = True
    """Whether finished jobs are deleted in the end (``purgeJobs``). False: their records stay for ever."""
    purge_timeout: int = PURGE_MS
    """After how many ms that is (``purgeTimeout``)."""
    redis_prefix: str = ""
    """What stands before the namespace in keys, but not in channels (``redisOptions.prefix``)."""

    def channels(self, prefix: str) -> bytes:
        """What channels begin with. ``prefix``: what keys begin with. Raises UsageError where redis_prefix is no part of that."""
        if not prefix.startswith(self.redis_prefix) or prefix == self.redis_prefix:
            raise UsageError(
                f"redis_prefix={show(self.redis_prefix)!r} must be what stands before the namespace in {show(prefix)!r}"
            )
        return to_bytes(prefix.removeprefix(self.redis_prefix)) + b":"


def _timeout(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise ValueError("must be a whole number of milliseconds")
    return int(text)


PARAMETERS: Mapping[str, Callable[[str], Any]] = {"purge_jobs": parse_flag, "purge_timeout": _timeout, "redis_prefix": str}
"""The parameters of the URL, with what parses them."""
