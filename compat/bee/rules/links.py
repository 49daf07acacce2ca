"""The rules of bee keyspaces about what ties jobs to others: dependencies, parents, tags. Collected by the package."""

from __future__ import annotations

from collections.abc import Iterator

from ....schema.family import Keyspace
from ....schema.rule import Harm, Severity, Violation
from ....schema.text import show, to_text
from ...rulebook import Rulebook
from ..keys import UNFINISHED, layout
from ..view import Dependency, View, view_of

SHOWN = 3
"""Names in one message."""

book: Rulebook[View] = Rulebook(view_of)


@book.about_jobs(
    "BEE-22",
    "What a blocked job waits for will end, and then release it",
    Severity.ERROR,
    Harm.LOST,
    repair="release the job from what has ended or is gone",
)
def dependencies_end(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.status == "new":
        for dependency in view.awaited:
            why = broken(dependency)
            if why is not None:
                yield view.violation(f"waits for job {show(dependency.job_id, 60)}, which {why}: blocked for ever")


def broken(dependency: Dependency) -> str | None:
    """Why a dependency will never release who waits for it; None where it will."""
    if not dependency.status:
        return "has no record"
    if dependency.status not in UNFINISHED:
        return f"is {show(dependency.status, 40)}"
    if not dependency.lists:
        return "does not know of it"
    return "is lost itself" if dependency.lost else None


@book.about_jobs(
    "BEE-23",
    "Only a new job waits for others",
    Severity.WARNING,
    Harm.LEAK,
    repair="delete the set of what the job waits for",
)
def only_new_waits(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.dependencies and view.status not in ("new", "canceled"):
        found = f"its status is {show(view.status, 40)!r}" if view.is_job else "it has no record"
        yield view.violation(f"is to wait for {len(view.dependencies)} others, but {found}", key=view.dependencies[0].key)


@book.about_jobs("BEE-24", "A job waits for all that have it among those that wait for them", Severity.ERROR, Harm.DUPLICATE)
def waits_for_all(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    if view.is_job and not view.is_ended_early:
        early = sorted(set(view.expected).difference(view.needs))
        if early:
            shown = ", ".join(show(other, 60) for other in early[:SHOWN])
            yield view.violation(f"should wait for {len(early)} jobs, and does not ({shown}): it starts too early")


@book.about_jobs(
    "BEE-25",
    "Only jobs with a tag are in its set",
    Severity.WARNING,
    Harm.LEAK,
    repair="take the job out of the set",
)
def tagged_rightly(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    for fact in view.tagged:
        if not view.is_job or fact.label not in view.tags:
            found = "no longer has this tag" if view.is_job else "has no record"
            yield view.violation(f"a job in {show(fact.key)} {found}", key=fact.key)


@book.about_jobs(
    "BEE-26",
    "A job is in the sets of its tags",
    Severity.INFO,
    Harm.COSMETIC,
    repair="put the job into the sets of its tags",
)
def is_found_by_tag(view: View, _keyspace: Keyspace) -> Iterator[Violation]:
    missing = untagged(view)
    if missing:
        shown = ", ".join(repr(show(tag, 40)) for tag in missing[:SHOWN])
        yield view.violation(f"not found by {len(missing)} of its tags ({shown})")


def untagged(view: View) -> list[str]:
    """The tags of a job in whose sets it should stand, and does not."""
    if not view.is_job or view.is_dying:
        return []
    found = {fact.label for fact in view.tagged}
    return [tag for tag in dict.fromkeys(view.tags) if tag not in found]


@book.about_jobs(
    "BEE-27",
    "A child is in the set of its parent, and nobody else is",
    Severity.WARNING,
    Harm.LEAK,
    repair="put the child into the set of its parent; take others out of it",
)
def child_knows_parent(view: View, keyspace: Keyspace) -> Iterator[Violation]:
    raw = view.fields.get(b"parent")
    parent = to_text(raw) if raw is not None and view.is_job else None
    for fact in view.child_of:
        if fact.label != parent:
            found = "names another parent" if view.is_job else "has no record"
            yield view.violation(f"a child in {show(fact.key)} {found}", key=fact.key)
    if parent is not None and not view.is_dying and all(fact.label != parent for fact in view.child_of):
        key = layout(keyspace.prefix).key("children", id=parent)
        yield view.violation(f"missing in {show(key)}: canceling the parent leaves it running")
