"""The rules of bee keyspaces about equal jobs: originals, duplicates, and the lists that hold them together.

Collected by the package.
"""

from __future__ import annotations

from collections.abc import Iterator

from ....schema.family import Keyspace
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import show, to_text
from ...rulebook import Rulebook
from ..keys import DYING, layout
from ..view import View, view_of

book: Rulebook[View] = Rulebook(view_of)

NO_ORIGINALS = DYING | {"duplicate"}
"""Status words of jobs that can't stand for others."""


@book.about_jobs(
    "BEE-19",
    "The first of a list of equal jobs is one that runs or has run",
    Severity.ERROR,
    Harm.LOST,
    repair="remove the job from the list, if it is alone there",
)
def head_is_an_original(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    for fact in view.lists:
        if fact.index == 0 and (not view.is_job or view.status in NO_ORIGINALS):
            found = f"is {view.status}" if view.is_job else "has no record"
            yield view.violation(
                f"the first in {show(fact.key)} {found}: equal jobs become its duplicates, and never run", key=fact.key
            )


@book.about_jobs(
    "BEE-20",
    "A job with a hash is in the list of that hash, and in no other",
    Severity.ERROR,
    Harm.LEAK,
    repair="put the job into the list of its hash, or take it out of the list where it does not belong",
)
def is_in_its_list(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    own = view.unique_list
    stays = view.is_job and view.status != "canceled" and not view.is_dying
    if stays and own is not None and all(fact.label != own for fact in view.lists):
        key = layout(keyspace.prefix).key("hashes", hashed=own)
        yield view.violation(f"missing in {show(key)}: it can never expire")
    for fact in view.lists:
        if fact.index != 0 and (not view.is_job or fact.label != own):
            found = f"a hash of {show(to_text(view.fields.get(b'hash', b'')))!r}" if view.is_job else "no record"
            yield view.violation(
                f"in {show(fact.key)} with {found}: what ends the list aborts, or ends this job too", key=fact.key
            )


@book.about_jobs("BEE-21", "The original of a duplicate runs or has run", Severity.ERROR, Harm.LOST)
def original_counts(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.status != "duplicate" or view.is_dying:
        return
    raw = view.fields.get(b"duplicate")
    if raw is None:
        yield view.violation("a duplicate that names no original: its result never comes")
    elif view.original is not None and (not view.original.status or view.original.status in NO_ORIGINALS):
        found = f"is {view.original.status}" if view.original.status else "has no record"
        yield view.violation(f"its original {show(raw, 60)} {found}: its result never comes")
