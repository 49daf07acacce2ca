"""Globs: the SCAN MATCH patterns of a family, made into the one pattern that a single scan can use.

Pure. Called by the scan and by detection.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from attrs import frozen

from ..schema.keys import glob_escape
from ..schema.text import to_bytes


@frozen
class Selection:
    """Several globs in the form that one scan can use."""

    exact: tuple[bytes, ...]
    """The keys that globs without a wildcard name."""
    match: str | None
    """One pattern that covers all other globs; None if there are none."""
    _wanted: re.Pattern[bytes] | None = None
    """What a key must fit where ``match`` covers more than the globs do."""

    @classmethod
    def of(cls, globs: Sequence[str]) -> Selection:
        exact = tuple(to_bytes(_unescape(each)) for each in globs if not _wildcard(each))
        wild = [each for each in globs if _wildcard(each)]
        if len(wild) < 2:
            return cls(exact, wild[0] if wild else None)
        return cls(exact, glob_escape(_common_start(wild)) + "*", _any_of(wild))

    def wanted(self, keys: list[bytes]) -> list[bytes]:
        """Of the keys that ``match`` has selected, those that one of the globs fits."""
        return keys if self._wanted is None else list(filter(self._wanted.fullmatch, keys))


def covering(globs: Sequence[str]) -> Callable[[bytes], bool]:
    """Tells of a key whether one of the globs fits it, as SCAN would."""
    expression = _any_of(globs)
    return lambda key: expression.fullmatch(key) is not None


_GLOB = re.compile(r"\\(?P<literal>.)|\[(?P<inverse>\^?)(?P<set>(?:\\.|[^\]])*)\]|(?P<wild>[*?])|(?P<plain>.)", re.DOTALL)
"""The tokens of a glob in Redis' dialect."""


def _wildcard(glob: str) -> bool:
    return any(token["wild"] or token["set"] is not None for token in _GLOB.finditer(glob))


def _unescape(glob: str) -> str:
    return "".join(token["literal"] or token["plain"] or "" for token in _GLOB.finditer(glob))


def _common_start(globs: Sequence[str]) -> str:
    """The text that every key starts with that fits one of the globs."""
    starts = []
    for glob in globs:
        first = next(token for token in _GLOB.finditer(glob) if token["wild"] or token["set"] is not None)
        starts.append(_unescape(glob[: first.start()]))
    lowest, highest = min(starts), max(starts)
    while not highest.startswith(lowest):
        lowest = lowest[:-1]
    return lowest


def _any_of(globs: Sequence[str]) -> re.Pattern[bytes]:
    return re.compile(b"|".join(_expression(each) for each in globs), re.DOTALL)


def _expression(glob: str) -> bytes:
    """The regular expression with the meaning of a glob."""
    pattern = []
    for token in _GLOB.finditer(glob):
        if token["wild"]:
            pattern.append(b".*" if token["wild"] == "*" else b".")
        elif token["set"] is not None:
            pattern.append(b"[" + token["inverse"].encode() + to_bytes(token["set"]) + b"]")
        else:
            pattern.append(re.escape(to_bytes(token["literal"] or token["plain"])))
    return b"".join(pattern)
