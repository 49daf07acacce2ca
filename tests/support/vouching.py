"""What a Voucher says of one record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ferryman.schema.voucher import Home, Voucher


class Sound(NamedTuple):
    """A job for which it vouches."""

    home: Home
    scores: tuple[float, ...]
    created_at: int


def vouch(voucher: Voucher, record: Mapping[bytes, bytes]) -> Sound | None:
    """None where the rules must look."""
    homes, scores, created_at = voucher.vouch({name: [value] for name, value in record.items()})
    return None if homes[0] is None else Sound(homes[0], tuple(column[0] for column in scores), created_at[0])
