"""Options of the data source: what Spark hands on as texts, as values.

Spark knows no types of options, and their names in any case. Called by ``source.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..migrations.throttle import UNTHROTTLED, Throttle
from ..schema.connection.address import Address
from ..schema.errors import UsageError
from .read_limits import HAS_READ_LIMITS

REMEMBER_DAYS = 30
"""For how long it is remembered what a batch has published, unless option ``remember`` says otherwise."""
PATHS = frozenset({"path", "paths"})
"""What Spark makes of what is given to ``load`` and ``save``."""


def check_names(options: Mapping[str, str], known: frozenset[str]) -> None:
    """Raises UsageError for an option that is none of these."""
    for name in options:
        if name.lower() not in known | PATHS:
            raise UsageError(f"unknown option {name!r}; known are: {', '.join(sorted(known))}")


def address_of(options: Mapping[str, str]) -> Address:
    """The keyspace that is named by the option url, or by the path of load or save. Raises UsageError."""
    url, path = options.get("url"), options.get("path")
    if "paths" in options:
        raise UsageError("load takes one URL; load each of several, and use union")
    if url is not None and path is not None and url != path:
        raise UsageError("the option 'url' names another keyspace than the path of load or save: give one of them")
    address = url if path is None else path
    if address is None:
        raise UsageError("option 'url' is missing: use .option('url', 'ferryman://…'), or .load('ferryman://…')")
    return Address.parse(address)


def is_flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """An option that is true or false. Raises UsageError."""
    text = options.get(name, str(default)).lower()
    if text not in ("true", "false"):
        raise UsageError(f"option {name!r} must be true or false, not {text!r}")
    return text == "true"


def throttle_of(options: Mapping[str, str], default: str | None = None) -> Throttle:
    """How fast a server is read. Raises UsageError."""
    text = options.get("throttle", default)
    if text is None:
        return UNTHROTTLED
    try:
        return Throttle.parse(text)
    except UsageError as error:
        raise UsageError(str(error).replace("--throttle", "option 'throttle'")) from None


def required(options: Mapping[str, str], name: str) -> str:
    """An option that must be there. Raises UsageError."""
    value = options.get(name)
    if value is None:
        raise UsageError(f"option {name!r} is missing")
    return value


def number(options: Mapping[str, str], name: str) -> int | None:
    """An option that is a whole number; None where it is not given. Raises UsageError."""
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"option {name!r} must be a whole number, not {text!r}")
    return int(text)


def seconds(options: Mapping[str, str], name: str, default: float) -> float:
    """An option that is a time in seconds. Raises UsageError."""
    text = options.get(name)
    if text is None:
        return default
    try:
        found = float(text)
    except ValueError:
        found = -1
    if not 0 <= found < float("inf"):
        raise UsageError(f"option {name!r} must be a number of seconds, not {text!r}")
    return found


def most_rows(options: Mapping[str, str], table: str) -> int | None:
    """Rows that a stream gives at once, at most. Raises UsageError."""
    most = number(options, "maxRowsPerTrigger")
    if most is None:
        return None
    if table != "events":
        raise UsageError("option 'maxRowsPerTrigger' goes with the stream of the table events alone")
    if most == 0:
        raise UsageError("option 'maxRowsPerTrigger' must be above 0")
    if not HAS_READ_LIMITS:
        raise UsageError("option 'maxRowsPerTrigger' needs Spark 4.2 or later; leave it out")
    return most


def remember_ms(options: Mapping[str, str]) -> int:
    """For how long it is remembered what a batch has published, ms. Raises UsageError."""
    days = number(options, "remember")
    if days == 0:
        raise UsageError("option 'remember' must be a number of days above 0")
    return 86_400_000 * (REMEMBER_DAYS if days is None else days)
