"""The rules of bee keyspaces about what belongs to no single job. They see only totals. Collected by the package."""

from __future__ import annotations

from collections.abc import Iterator

from ....schema.family import Keyspace
from ....schema.odd_key import NAMELESS
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import show, to_bytes
from ...rulebook import Rulebook, unnamed
from ..keys import layout
from ..view import View, view_of
from .record import KEYS_MAKE_SENSE

book: Rulebook[View] = Rulebook(view_of)


@book.about_keyspace(
    "BEE-28", "The options of all hives are a JSON object", Severity.ERROR, Harm.LATE, repair="set the options to bee's own"
)
def hive_has_options(keyspace: Keyspace) -> Iterator[Violation]:
    totals = keyspace.totals
    if not totals.sums["hive options", "sound"] and (totals.sums["records", ""] or totals.sums["hive options", "broken"]):
        found = "no JSON object" if totals.sums["hive options", "broken"] else "missing"
        yield Violation(f"{found}: every script aborts until a hive connects anew", layout(keyspace.prefix).key("hive"))


@book.about_keyspace("BEE-29", "All ten scripts are named by their digests", Severity.WARNING, Harm.LATE)
def scripts_are_named(keyspace: Keyspace) -> Iterator[Violation]:
    wrong = keyspace.totals.samples.get(("broken script", ""), [])
    if wrong:
        shown = ", ".join(show(name, 40) for name in wrong)
        yield Violation(f"unknown, or without a SHA1 of 40 digits: {shown}", layout(keyspace.prefix).key("scripts"))


@book.about_keyspace("BEE-30", KEYS_MAKE_SENSE, Severity.ERROR, Harm.LOST)
def keys_make_sense(keyspace: Keyspace) -> Iterator[Violation]:
    totals, names = keyspace.totals, layout(keyspace.prefix)
    for role in totals.labels("odd key"):
        for text in totals.samples["odd key", role]:
            key = to_bytes(text)
            if role == NAMELESS:
                yield Violation("no key of bee's: it is left where it is", key, severity=Severity.WARNING)
            else:
                queue = next((match.fields.get("queue") for match in names.matches(key)), None)
                wanted = " or ".join(names.patterns[role].redis_types)
                yield Violation(f"has the wrong Redis type; a key of this name must be a {wanted}", key, queue)
        yield from unnamed(totals, "odd key", role, "keys that make no sense")
