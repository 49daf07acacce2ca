"""The ACL rules that docs/broker.md publishes: what tests check is what users read."""

from __future__ import annotations

import re
from pathlib import Path

BROKER = Path(__file__).parents[2] / "docs" / "broker.md"


def published_rules() -> tuple[list[str], list[str]]:
    """The words of the rule for one server, and of what a cluster needs besides."""
    one, more = re.findall(r"ACL SETUSER shop (.*?)\n\n", BROKER.read_text(encoding="utf-8"), re.DOTALL)
    return one.replace("\\\n", " ").split(), more.split()
