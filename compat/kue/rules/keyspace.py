"""The rules of kue keyspaces about what belongs to no single job: wake-up tokens, counter, locks, keys that should not be.

They see only totals (``reader.tally``), so they cost the same for any number of jobs. Collected by the package.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....schema.family import Keyspace
from ....schema.odd_key import NAMELESS
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import span, to_bytes
from ....schema.totals import Totals
from ...rulebook import Rulebook, expiring_keys, unnamed
from ..keys import layout
from ..view import View, view_of

LONGEST_LOCK_MS = 60_000
"""kue's locks last 2 s; an application may have set another time, but hardly above this."""

book: Rulebook[View] = Rulebook(view_of)


def _queues(totals: Totals) -> Iterator[tuple[str, int, int]]:
    """Every type with jobs waiting or tokens: how many of each."""
    for queue in sorted({*totals.labels("waiting"), *totals.labels("tokens")}):
        yield queue, totals.sums["waiting", queue], totals.sums["tokens", queue]


@book.about_keyspace(
    "KUE-8",
    "A type has a wake-up token for every waiting job",
    Severity.ERROR,
    Harm.LOST,
    repair="push the missing tokens",
)
def enough_tokens(keyspace: Keyspace) -> Iterator[Violation]:
    for queue, waiting, tokens in _queues(keyspace.totals):
        if tokens < waiting:
            key = layout(keyspace.prefix).key("tokens", queue=queue)
            last = waiting - tokens
            yield Violation(
                f"{waiting} waiting, tokens for {tokens}: the last {last} in order run only when new jobs come", key, queue
            )


@book.about_keyspace(
    "KUE-9",
    "A type has no more wake-up tokens than waiting jobs (normal after removals and restarts)",
    Severity.INFO,
    Harm.COSMETIC,
)
def no_surplus_tokens(keyspace: Keyspace) -> Iterator[Violation]:
    for queue, waiting, tokens in _queues(keyspace.totals):
        if tokens > waiting:
            key = layout(keyspace.prefix).key("tokens", queue=queue)
            yield Violation(f"{waiting} waiting, tokens for {tokens}: each one too many costs an empty pop", key, queue)


@book.about_keyspace("KUE-10", "Every wake-up token is the text 1", Severity.INFO, Harm.COSMETIC)
def tokens_are_ones(keyspace: Keyspace) -> Iterator[Violation]:
    for queue in keyspace.totals.labels("strange tokens"):
        strange = keyspace.totals.sums["strange tokens", queue]
        yield Violation(f"{strange} tokens are not the text 1", layout(keyspace.prefix).key("tokens", queue=queue), queue)


@book.about_keyspace(
    "KUE-26",
    "The id counter is not below the highest job",
    Severity.ERROR,
    Harm.LOST,
    repair="raise the counter to the highest job id",
)
def counter_is_ahead(keyspace: Keyspace) -> Iterator[Violation]:
    given = keyspace.totals.maxima.get(("ids", ""), 0)
    highest = keyspace.totals.maxima.get(("highest id", ""), 0)
    if given < highest:
        detail = f"the counter stands at {given}, the highest job is {highest}: new jobs will overwrite old ones"
        yield Violation(detail, layout(keyspace.prefix).key("ids"))


@book.about_keyspace(
    "KUE-29",
    "Every key under the prefix is one of kue's, has the right Redis type, and does not run out",
    Severity.ERROR,
    Harm.LOST,
)
def keys_make_sense(keyspace: Keyspace) -> Iterator[Violation]:
    totals = keyspace.totals
    types = totals.names.get("types", set())
    for role in totals.labels("odd key"):
        for text in totals.samples["odd key", role]:
            key = to_bytes(text)
            queue = next((match.fields.get("queue") for match in layout(keyspace.prefix).matches(key)), None)
            if role == NAMELESS or (role == "tokens" and queue not in types):
                yield Violation("no key of kue's: it is left where it is", key, severity=Severity.WARNING)
            else:
                wanted = " or ".join(layout(keyspace.prefix).patterns[role].redis_types)
                yield Violation(f"has the wrong Redis type; a key of this name must be a {wanted}", key, queue)
        yield from unnamed(totals, "odd key", role, "keys that make no sense")
    for role in totals.labels("odd member"):
        for text in totals.samples["odd member", role]:
            number = totals.sums["odd member", role]
            yield Violation(f"holds members that name no job ({number} in such keys)", to_bytes(text), severity=Severity.WARNING)


@book.about_keyspace(
    "KUE-29",
    "Every key under the prefix is one of kue's, has the right Redis type, and does not run out",
    Severity.ERROR,
    Harm.LOST,
    repair="take the time to live off the key (PERSIST)",
)
def keys_do_not_expire(keyspace: Keyspace) -> Iterator[Violation]:
    return expiring_keys(keyspace.totals, but=("record", "log"))  # hashes and logs are reported with their jobs


@book.about_keyspace(
    "KUE-31",
    "The locks of promotion and of the ttl check end by themselves",
    Severity.ERROR,
    Harm.LATE,
    repair="delete the lock",
)
def locks_end(keyspace: Keyspace) -> Iterator[Violation]:
    for (measure, name), ttl_ms in sorted(keyspace.totals.maxima.items()):
        if measure != "lock ttl":
            continue
        if ttl_ms < 0:
            work = "promoted" if name.startswith("promotion") else "checked for their ttl"
            yield Violation(f"a lock without end: no jobs are {work}, under any prefix of this database", to_bytes(name))
        elif ttl_ms > LONGEST_LOCK_MS:
            detail = f"a lock for {span(ttl_ms)}, where kue takes 2 s"
            yield Violation(detail, to_bytes(name), severity=Severity.WARNING)
