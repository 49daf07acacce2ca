"""The rules of pjq keyspaces about what belongs to no single job and no worker: keys that should not be.

They see only totals (``reader.tally``), so they cost the same for any number of jobs. Collected by the package.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....schema.family import Keyspace
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import to_bytes
from ...rulebook import Rulebook
from ..keys import layout
from ..view import View, view_of

book: Rulebook[View] = Rulebook(view_of)


@book.about_keyspace(
    "PJQ-1",
    "Every key has the Redis type that the programs expect; a job whose key has another is not carried",
    Severity.ERROR,
    Harm.POISON,
    repair="rename the key; workers_idle as a sorted set of the JavaScript program may be removed",
)
def containers_have_types(keyspace: Keyspace) -> Iterator[Violation]:
    for text in sorted(keyspace.totals.names.get("misfits", ())):
        key = to_bytes(text)
        match = next(layout(keyspace.prefix).matches(key))
        queue = match.fields["queue"]
        if match.role.startswith("staged"):
            yield Violation("left by a migration that is not finished: finish it, or its jobs never run", key, queue)
        else:
            wanted = match.pattern.redis_types[0]
            yield Violation(f"must be a {wanted}: every message for this queue kills the program", key, queue)


@book.about_keyspace(
    "PJQ-22",
    "No hash of a job and no container runs out",
    Severity.ERROR,
    Harm.LOST,
    repair="take the time to live off the key (PERSIST)",
)
def containers_do_not_expire(keyspace: Keyspace) -> Iterator[Violation]:
    for text in sorted(keyspace.totals.names.get("expiring", ())):
        key = to_bytes(text)
        yield Violation("has a time to live, and will vanish", key, next(layout(keyspace.prefix).matches(key)).fields["queue"])


@book.about_keyspace(
    "PJQ-23",
    "Nothing is left of the first JavaScript program beside a newer one's keys",
    Severity.ERROR,
    Harm.LOST,
    repair="migrate its jobs: they are carried like all others",
)
def first_program_is_gone(keyspace: Keyspace) -> Iterator[Violation]:
    if keyspace.totals.names.get("current keys"):
        for text in sorted(keyspace.totals.names.get("js-1 keys", ())):
            key = to_bytes(text)
            queue = next(layout(keyspace.prefix).matches(key)).fields["queue"]
            yield Violation("of the first JavaScript program: no newer one ever looks there", key, queue)
