"""Key patterns: one description per kind of key that both builds the name and parses it.

A template such as ``<prefix>:jobs:<queue>:<state>`` has fields in angle brackets. Names are arbitrary text, so parsing is
never guesswork of the first match alone: a pattern may restrict a field by a regular expression and names the Redis type,
and a layout returns every pattern that fits, in the order in which they were declared.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from attrs import evolve, field

from .frozen import frozen
from .text import to_bytes, to_text

_FIELD = re.compile(r"<([a-z_]+)>")


def _format(template: str, fixed: Mapping[str, str]) -> str:
    """The template as Python's ``%`` fills in all but the ``fixed`` fields: writers build millions of names."""

    def part(found: re.Match[str]) -> str:
        name = found[1]
        return fixed[name].replace("%", "%%") if name in fixed else f"%({name})s"

    return _FIELD.sub(part, template.replace("%", "%%"))


@frozen
class KeyPattern:
    """One kind of key.

    ``redis_types``: the types this key may have, normally one. ``where``: field -> regular expression; a field without one
    takes any text of at least one character, newlines included, as much as it can.
    """

    role: str
    template: str
    redis_types: tuple[str, ...]
    where: Mapping[str, str] = field(factory=dict)

    def expression(self, fixed: Mapping[str, str]) -> re.Pattern[str]:
        """The regular expression that parses the key's text, with the ``fixed`` fields filled in."""
        parts, end = [], 0
        for found in _FIELD.finditer(self.template):
            parts.append(re.escape(self.template[end : found.start()]))
            name = found[1]
            parts.append(re.escape(fixed[name]) if name in fixed else f"(?P<{name}>{self.where.get(name, '.+')})")
            end = found.end()
        parts.append(re.escape(self.template[end:]))
        return re.compile("".join(parts), re.DOTALL)


@frozen
class KeyMatch:
    """A key that a pattern fits: the pattern's role and the fields that the name tells."""

    pattern: KeyPattern
    fields: Mapping[str, str]

    @property
    def role(self) -> str:
        return self.pattern.role


class KeyLayout:
    """All key patterns of one keyspace, with the fixed fields (mostly the prefix) filled in."""

    def __init__(self, patterns: tuple[KeyPattern, ...], **fixed: str) -> None:
        self.patterns = {pattern.role: pattern for pattern in patterns}
        self._formats = {pattern.role: _format(pattern.template, fixed) for pattern in patterns}
        self._expressions = [(pattern, pattern.expression(fixed)) for pattern in patterns]
        self._by_type = {
            kind: [each for each in self._expressions if kind in each[0].redis_types]
            for kind in {kind for pattern in patterns for kind in pattern.redis_types}
        }

    def key(self, role: str, **values: str) -> bytes:
        """The name of the key of this role. Raises KeyError when a field of its template is not given."""
        return to_bytes(self._formats[role] % values)

    def matches(self, key: bytes) -> Iterator[KeyMatch]:
        """Every pattern whose form the name has, whatever the key's type."""
        return _matches(key, self._expressions)

    def parse(self, key: bytes, redis_type: str) -> KeyMatch | None:
        """The first pattern that fits both the name and the type; None if there is none."""
        return next(_matches(key, self._by_type.get(redis_type, ())), None)


def _matches(key: bytes, expressions: Iterable[tuple[KeyPattern, re.Pattern[str]]]) -> Iterator[KeyMatch]:
    text = to_text(key)
    for pattern, expression in expressions:
        found = expression.fullmatch(text)
        if found:
            yield KeyMatch(pattern, found.groupdict())


class PrefixFinder:
    """Tells under which prefix a key would be one of a system's own, from its name and type alone.

    ``roles``: the patterns that are telling enough; others are what anybody's key might be called. ``prefix``: what a prefix may
    look like, as a regular expression. Where a name could be split in several ways, the longest prefix is taken.
    """

    def __init__(self, patterns: Sequence[KeyPattern], roles: Collection[str], prefix: str = ".+") -> None:
        self._expressions = [
            (evolve(pattern, where={**pattern.where, "prefix": prefix}).expression({}), pattern.redis_types)
            for pattern in patterns
            if pattern.role in roles
        ]

    def prefixes(self, key: bytes, redis_type: str) -> Iterator[str]:
        """The prefixes, each once. Never raises."""
        text = to_text(key)
        found = (expression.fullmatch(text) for expression, types in self._expressions if redis_type in types)
        yield from dict.fromkeys(match["prefix"] for match in found if match)


def longer_prefixes(prefixes: Iterable[str], prefix: str) -> list[str]:
    """What follows ``prefix`` in those of the prefixes that begin with it and are longer."""
    return [other.removeprefix(prefix) for other in prefixes if other != prefix and other.startswith(prefix)]


def hash_tag(key: bytes) -> bytes:
    """What a Redis Cluster looks at to choose a key's slot: the first ``{…}`` that is not empty, or else the whole name."""
    start = key.find(b"{")
    end = key.find(b"}", start + 1) if start >= 0 else -1
    return key[start + 1 : end] if end > start + 1 else key


def glob_escape(text: str) -> str:
    """``text`` for use in a SCAN MATCH pattern, where it shall stand for itself."""
    return re.sub(r"([\\*?\[\]^])", r"\\\1", text)
