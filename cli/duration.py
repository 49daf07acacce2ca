"""Durations: lengths of time as people write and read them, the same in options of commands, in tables and on the web page."""

from __future__ import annotations

import re

import click

UNITS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
"""The ms of each unit."""
_PATTERN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,3})?) ?(ms|s|min|m|h|d|)")


def parse_duration(text: str, *, bare_is_seconds: bool = False) -> int:
    """The ms of ``90s``, ``30m``, ``1.5h``, ``7 d``. ``bare_is_seconds``: a number without a unit has one.

    Raises ValueError, with a sentence that says how to write it.
    """
    found = _PATTERN.fullmatch(text.strip())
    if found is None or not (found[2] or bare_is_seconds):
        raise ValueError(f"{text!r} is no length of time; write a number with its unit, as 90s, 30m, 2h or 7d")
    return round(float(found[1]) * UNITS[found[2] or "s"])


def largest_units(ms: float) -> list[tuple[int, str]]:
    """A length of time in its two largest units, each with its number: ``[(2, "h"), (5, "min")]``; below a minute in seconds."""
    seconds = max(0, int(ms)) // 1000
    for size, unit, smaller, small_unit in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            return [(seconds // size, unit), (seconds % size // smaller, small_unit)]
    return [(seconds, "s")]


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic in new versions only
    """The type of an option that takes a length of time; the command gets it in ms."""

    name = "duration"

    def __init__(self, *, least_ms: int = 0, bare_is_seconds: bool = False) -> None:
        """``least_ms``: shorter ones are refused. ``bare_is_seconds``: a number without a unit is one of seconds."""
        self.least_ms = least_ms
        self.bare_is_seconds = bare_is_seconds

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The duration, ms. A default may be given in ms as well."""
        if isinstance(value, int):
            return value
        try:
            duration = parse_duration(value, bare_is_seconds=self.bare_is_seconds)
        except ValueError as error:
            self.fail(str(error), param, ctx)
        if duration < self.least_ms:
            self.fail(f"{value!r} is too short; at least {self.least_ms / 1000:g}s is possible", param, ctx)
        return duration


DURATION = Duration()
