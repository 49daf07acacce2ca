"""Core: beside which software of the qless family ferryman works on its queues. Called by the family and its transitions."""

from __future__ import annotations

from typing import Literal, get_args

Core = Literal["", "unified", "final", "reqless"]
"""Beside which software we work; '' is told from the keys."""


def parse_core(text: str) -> Core:
    """A core by its name. Raises ValueError."""
    for core in get_args(Core):
        if text == core:
            return core  # type: ignore[no-any-return]
    raise ValueError(f"must be one of {', '.join(filter(None, get_args(Core)))}")
