"""Keys of kombu: key patterns, priority buckets, and which names are control traffic instead of queues.

A queue is a list of any name, so with an empty prefix every list of the database might be one: a name alone proves nothing but
for the few below (``reader.py`` looks at what stands in a list). Called by everything in this folder.
"""

from __future__ import annotations

from bisect import bisect
from functools import lru_cache
from typing import Any

from ...schema.keys import KeyLayout, KeyPattern, PrefixFinder

SEP = "\x06\x16"
"""Between a queue's name and its bucket, and between the parts of a binding."""

STEPS = (0, 3, 6, 9)
"""The buckets of every queue, unless the option ``priority_steps`` says otherwise. Bucket 0 is the list with the bare name."""

VISIBILITY_TIMEOUT_MS = 3_600_000
"""After so long a message that nobody acked goes back, unless the option ``visibility_timeout`` says otherwise."""

PATTERNS = (
    KeyPattern("unacked", "<prefix>unacked", ("hash",)),
    KeyPattern("index", "<prefix>unacked_index", ("zset",)),
    KeyPattern("mutex", "<prefix>unacked_mutex", ("string",)),
    KeyPattern("binding", "<prefix>_kombu.binding.<exchange>", ("set",), {"exchange": ".*"}),
    KeyPattern("permanent", "<prefix>_kombu.binding_permanent.<exchange>", ("set",), {"exchange": ".*"}),
    KeyPattern("deadlines", "<prefix>_kombu.binding_deadlines", ("zset",)),
    # What the writer needs until a migration is finished.
    KeyPattern("staged", "<prefix>_ferryman.staged.<queue>", ("hash",)),
    KeyPattern("staged_order", "<prefix>_ferryman.staged_order.<queue>", ("zset",)),
    KeyPattern("staged_list", "<prefix>_ferryman.staged_list.<step>.<queue>", ("list",), {"step": "-?[0-9]{1,9}"}),
    KeyPattern("bucket", f"<prefix><queue>{SEP}<step>", ("list",), {"step": "-?[1-9][0-9]{0,8}"}),
    KeyPattern("queue", "<prefix><queue>", ("list",)),
)

LISTS = ("queue", "bucket")
"""The roles that any name may have; all others are told by their name alone."""

DEFAULT_QUEUE = "celery"

TELLING = PrefixFinder(PATTERNS, {"unacked", "index", "binding", "permanent"}, prefix=".*")
"""Publishing to a queue binds it first, so there is no keyspace without a binding table."""


@lru_cache(maxsize=64)
def layout(prefix: str) -> KeyLayout:
    """All keys of the keyspace under ``global_keyprefix``."""
    return KeyLayout(PATTERNS, prefix=prefix)


def bucket_key(prefix: str, queue: str, step: int) -> bytes:
    """The list of one bucket of a queue."""
    names = layout(prefix)
    return names.key("bucket", queue=queue, step=str(step)) if step else names.key("queue", queue=queue)


def step_of(priority: Any) -> int:
    """The bucket into which kombu puts a message of this priority; what is no number counts as 0."""
    try:
        number = int(priority)
    except (TypeError, ValueError, OverflowError):
        number = 0
    return STEPS[bisect(STEPS, min(max(number, STEPS[0]), STEPS[-1])) - 1]


def is_control(queue: str) -> bool:
    """Whether a queue carries remote control or events, which are worthless as soon as nobody waits for them."""
    return queue.endswith(".pidbox") or queue == "celeryev" or queue.startswith("celeryev.")


def is_reply(queue: str) -> bool:
    """Whether a queue holds the answers to one caller's remote control commands."""
    return queue.endswith(".reply.celery.pidbox")


def can_be_queue(name: str) -> bool:
    """Whether kombu could use a queue of this name, and a reader would take its list for one."""
    if not is_unicode(name) or SEP in name or is_control(name):
        return False
    return [match.role for match in layout("").matches(name.encode())] == ["queue"]


def is_unicode(text: str) -> bool:
    """Whether kombu could write the text: it encodes every name as UTF-8."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def lane(queue: str, step: int) -> str:
    """A bucket as label of the totals."""
    return f"{queue}{SEP}{step}"


def lane_parts(label: str) -> tuple[str, int]:
    """The queue and the step behind ``lane``."""
    queue, _, step = label.rpartition(SEP)
    return queue, int(step)
