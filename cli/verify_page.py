"""The page of a comparison: how many jobs stand on both sides, and where a target is not what was promised.

Everything that came from Redis is escaped by ``html.py``. Pure. Called by ``verify.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..migrations.engine import Difference, Verification
from ..schema.connection.address import Address
from .html import Content, document, element, table, terms


def verify_page(source: Address, target: Address, outcome: Verification, shown: Sequence[Difference]) -> str:
    """The page as text. ``shown``: the first differences."""
    title = "Comparison of two keyspaces"
    facts: list[tuple[str, Content]] = [
        ("Source", element("code", source.display())),
        ("Target", element("code", target.display())),
        ("Jobs at the source", outcome.source_jobs),
        ("Jobs at the target", outcome.target_jobs),
        ("Equal", outcome.matched),
        ("Left at the source by rules", outcome.refused),
        ("Differences", outcome.differences),
    ]
    name, badge = ("no differences", "fine") if not outcome.differences else (f"{outcome.differences:,} differences", "error")
    return document(
        title,
        element("h1", title),
        element("p", element("span", name, class_=f"badge {badge}")),
        terms(facts),
        *(_differences(outcome, shown) if outcome.differences else ()),
    )


def _differences(outcome: Verification, shown: Sequence[Difference]) -> list[Content]:
    by_field = sorted(outcome.by_field.items(), key=lambda item: (-item[1], item[0]))
    rows: list[list[Content]] = [
        [element("code", each.job_id), each.queue, each.field, element("code", each.source), element("code", each.target)]
        for each in shown
    ]
    more = outcome.differences - len(shown)
    return [
        element("h2", "In which fields"),
        table(["field", "differences"], by_field, right=["differences"]),
        element("h2", "Differences"),
        table(["job", "queue", "field", "promised", "found"], rows),
        element("p", f"… and {more:,} more.", class_="faint") if more else None,
    ]
