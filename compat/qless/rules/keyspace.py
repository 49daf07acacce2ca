"""The rules of qless keyspaces about the whole: registered queues, and keys that should not be.

They see only totals (``reader.tally``), so they cost the same for any number of jobs. Collected by the package.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....schema.family import Keyspace
from ....schema.odd_key import NAMELESS
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import to_bytes
from ...rulebook import Rulebook, unnamed
from ..keys import Generation, era_of, layout
from ..view import View, view_of

book: Rulebook[View] = Rulebook(view_of)


@book.about_keyspace(
    "QLESS-26",
    "Every queue with jobs is registered",
    Severity.WARNING,
    Harm.COSMETIC,
    repair="register the queue",
)
def queues_are_registered(keyspace: Keyspace) -> Iterator[Violation]:
    totals = keyspace.totals
    # The register came with the jid.
    if era_of(keyspace).generation >= Generation.JID:
        for queue in sorted(totals.names.get("indexed", set()) - totals.names.get("queues", set())):
            yield Violation("has jobs, but is not registered: no listing of queues shows it", to_bytes(queue), queue)


@book.about_keyspace(
    "QLESS-30",
    "Every key under the prefix is one of qless's, has the right type, and runs out only if it is a throttle set so",
    Severity.ERROR,
    Harm.LOST,
)
def keys_make_sense(keyspace: Keyspace) -> Iterator[Violation]:
    totals = keyspace.totals
    for role in totals.labels("odd key"):
        for text in totals.samples["odd key", role]:
            if role == NAMELESS:
                yield Violation("no key of qless's: it is left where it is", to_bytes(text), severity=Severity.WARNING)
            else:
                wanted = layout(keyspace.prefix).redis_type(role)
                yield Violation(f"has the wrong Redis type; a key of this name must be a {wanted}", to_bytes(text))
        yield from unnamed(totals, "odd key", role, "keys that make no sense")
    for text in totals.samples.get(("beats", ""), ()):
        yield Violation("heartbeats of March 2012, which nothing reads", to_bytes(text), severity=Severity.INFO)


@book.about_keyspace(
    "QLESS-30",
    "Every key under the prefix is one of qless's, has the right type, and runs out only if it is a throttle set so",
    Severity.ERROR,
    Harm.LOST,
    repair="take the time to live off the key (PERSIST)",
)
def keys_do_not_expire(keyspace: Keyspace) -> Iterator[Violation]:
    for role in keyspace.totals.labels("expiring"):
        for text in keyspace.totals.samples["expiring", role]:
            yield Violation("has a time to live, and will vanish", to_bytes(text))
        yield from unnamed(keyspace.totals, "expiring", role, "keys with a time to live")
