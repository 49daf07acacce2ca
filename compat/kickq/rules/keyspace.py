"""The rules of kickq keyspaces about what belongs to no single job: the counter, and keys that should not be.

They see only totals (``reader.tally``), so they cost the same for any number of jobs. Collected by the package.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....schema.family import Keyspace
from ....schema.odd_key import NAMELESS
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import to_bytes
from ...rulebook import Rulebook, expiring_keys, unnamed
from ..keys import layout
from ..view import View, view_of

book: Rulebook[View] = Rulebook(view_of)


@book.about_keyspace(
    "KICKQ-1", "Every key under the namespace is one of kickq's, of the right Redis type, and stays", Severity.ERROR, Harm.LOST
)
def keys_make_sense(keyspace: Keyspace) -> Iterator[Violation]:
    totals, names = keyspace.totals, layout(keyspace.prefix)
    for role in totals.labels("odd key"):
        for text in totals.samples["odd key", role]:
            if role == NAMELESS:
                yield Violation("no key of kickq's: it is left where it is", to_bytes(text), severity=Severity.WARNING)
            elif role.startswith("staged"):
                detail = "a migration into this keyspace was not finished: run it again with --resume"
                yield Violation(detail, to_bytes(text), severity=Severity.WARNING)
            else:
                wanted = names.patterns[role].redis_types[0]
                yield Violation(f"has the wrong Redis type; a key of this name must be a {wanted}", to_bytes(text))
        yield from unnamed(totals, "odd key", role, "such keys")


@book.about_keyspace(
    "KICKQ-1",
    "Every key under the namespace is one of kickq's, of the right Redis type, and stays",
    Severity.ERROR,
    Harm.LOST,
    repair="take the time to live off the key (PERSIST)",
)
def keys_do_not_expire(keyspace: Keyspace) -> Iterator[Violation]:
    return expiring_keys(keyspace.totals)


@book.about_keyspace(
    "KICKQ-3", "The state is one of kickq's eight words; otherwise the job is not carried", Severity.WARNING, Harm.COSMETIC
)
def sets_are_kickqs(keyspace: Keyspace) -> Iterator[Violation]:
    for text in keyspace.totals.samples.get(("strange state", ""), []):
        yield Violation("no state of kickq's: other software is at work here", to_bytes(text))


@book.about_keyspace(
    "KICKQ-21",
    "The id counter is not below the highest job",
    Severity.ERROR,
    Harm.LOST,
    repair="raise the counter to the highest job id",
)
def counter_is_ahead(keyspace: Keyspace) -> Iterator[Violation]:
    given = keyspace.totals.maxima.get(("ids", ""))
    highest = keyspace.totals.maxima.get(("highest id", ""), 0)
    if highest > (given or 0) or keyspace.totals.sums["bad counter", ""]:
        problem = "is missing" if given is None else f"stands at {given}"
        if keyspace.totals.sums["bad counter", ""]:
            problem = "is no number"
        detail = f"the counter {problem}, the highest job is {highest}: new jobs will overwrite old ones"
        yield Violation(detail, layout(keyspace.prefix).key("ids"))
