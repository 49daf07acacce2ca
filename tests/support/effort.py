"""How much the tests do: what a change must pass, or all that a night has time for. Read from the environment."""

from __future__ import annotations

import os

NIGHTLY = bool(os.environ.get("FERRYMAN_NIGHTLY"))
"""``make nightly``: each case on each kind of server, and ten times the random examples."""
SERVERS = os.environ.get("FERRYMAN_TESTS_ON") or None
"""The one kind of server that is asked, by its name; None, or empty: all that are found."""


def examples(count: int) -> int:
    """How many random examples a test draws that draws ``count`` for a change."""
    return count * 10 if NIGHTLY else count
