"""Numbers: decimal text found in Redis, read strictly, and written the way JavaScript and Redis write it.

What is no number, or too large for a 64-bit column, is None: the caller keeps the text as it is. Never raises for any bytes.
Called by the readers and writers of every foreign family.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

MAX_INT64 = 2**63 - 1
"""Reports and Spark tables hold 64-bit integers; no honest time or counter comes near."""

PLAIN_DIGITS = 18
"""So many are no more than MAX_INT64, whichever they are."""

_DECIMAL = re.compile(rb"[+-]?(?:[0-9]{1,400}\.?[0-9]{0,400}|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?")


def int64_or_none(number: int) -> int | None:
    """``number`` if 64 bits hold it."""
    return number if -MAX_INT64 <= number <= MAX_INT64 else None


def parse_int(raw: bytes | None) -> int | None:
    """The integer that a decimal text stands for; None for everything else."""
    if raw is None:
        return None
    if len(raw) <= PLAIN_DIGITS and raw.isdigit():
        return int(raw)
    digits = raw[1:] if raw.startswith(b"-") else raw
    # isdigit of bytes knows ASCII digits only. The length is checked first: int() is slow, or fails, for very long texts.
    return int64_or_none(int(raw)) if len(digits) <= 19 and digits.isdigit() else None


def parse_ints(column: Sequence[bytes]) -> list[int | None]:
    """``parse_int`` of each text; of many plain numbers in a quarter of the time."""
    if b"".join(column).isdigit() and all(column) and max(map(len, column)) <= PLAIN_DIGITS:
        return list(map(int, column))
    return list(map(parse_int, column))


def parse_number(raw: bytes | None) -> int | float | None:
    """The finite number that a decimal text stands for, as int where the text is an integer."""
    if raw is None:
        return None
    integer = parse_int(raw)
    if integer is not None or not _DECIMAL.fullmatch(raw):
        return integer
    value = float(raw)
    return value if math.isfinite(value) else None


def score_to_int(score: float | None) -> int | None:
    """The integer part of a zset's score; None for an infinite one, or one that 64 bits can't hold."""
    if score is None or not math.isfinite(score):
        return None
    return int64_or_none(int(score))


def number_text(value: int | float) -> bytes:
    """The shortest text that reads back as ``value``: ``2``, not ``2.0``, as JavaScript writes it."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        value = int(value)
    return repr(value).encode("ascii")
