"""Keys of kombu: key patterns, priority buckets, and which names are control traffic instead of queues.

A queue is a list of any name, so with an empty prefix every list of the database might be one: a name alone proves nothing but
for the few below (``reader.py`` looks at what stands in a list). Called by everything in this folder.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from attrs import frozen

from ...schema.family import Keyspace
from ...schema.keys import KeyLayout, KeyPattern, PrefixFinder
from ...schema.text import is_unicode

SEP = "\x06\x16"
"""Between a queue's name and its bucket, and between the parts of a binding."""

STEPS = (0, 3, 6, 9)
"""The buckets of every queue, unless the option ``priority_steps`` says otherwise. Bucket 0 is the list with the bare name."""

VISIBILITY_TIMEOUT_MS = 3_600_000
"""After so long a message that nobody acked goes back, unless the option ``visibility_timeout`` says otherwise."""


@frozen
class Settings:
    """The options of kombu's processes that change what stands where; None: to be found from the keys themselves."""

    sep: str | None = None
    """Between a queue's name and its bucket, and between the parts of a binding."""
    priority_steps: tuple[int, ...] | None = None
    unacked_key: str = "unacked"
    unacked_index_key: str = "unacked_index"
    unacked_mutex_key: str = "unacked_mutex"
    visibility_timeout: float = VISIBILITY_TIMEOUT_MS / 1000
    """Seconds."""

    @property
    def steps(self) -> tuple[int, ...]:
        """The buckets, by what is known beforehand."""
        return STEPS if self.priority_steps is None else self.priority_steps

    @property
    def separator(self) -> str:
        """What is written between the parts of a name."""
        return SEP if self.sep is None else self.sep

    @property
    def visibility_ms(self) -> int:
        """The visibility timeout, ms."""
        return round(self.visibility_timeout * 1000)


USUAL = Settings()


def _text(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


def _steps(text: str) -> tuple[int, ...]:
    try:
        steps = tuple(sorted({int(part) for part in text.strip("[]()").split(",")}))
    except ValueError:
        raise ValueError("must be whole numbers with commas, as in 0,3,6,9") from None
    if steps[0] != 0:
        raise ValueError("must begin with 0, the bucket without a number")
    return steps


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < 1e9:
        raise ValueError("must be a number of seconds above 0")
    return seconds


PARAMETERS: Mapping[str, Callable[[str], Any]] = {
    "sep": _text,
    "priority_steps": _steps,
    "unacked_key": _text,
    "unacked_index_key": _text,
    "unacked_mutex_key": _text,
    "visibility_timeout": _seconds,
}
"""The URL's parameters, with the names that they have among kombu's transport options."""

PATTERNS = (
    KeyPattern("unacked", "<prefix><unacked>", ("hash",), {"unacked": "unacked"}),
    KeyPattern("index", "<prefix><index>", ("zset",), {"index": "unacked_index"}),
    KeyPattern("mutex", "<prefix><mutex>", ("string",), {"mutex": "unacked_mutex"}),
    KeyPattern("binding", "<prefix>_kombu.binding.<exchange>", ("set",), {"exchange": ".*"}),
    KeyPattern("permanent", "<prefix>_kombu.binding_permanent.<exchange>", ("set",), {"exchange": ".*"}),
    KeyPattern("deadlines", "<prefix>_kombu.binding_deadlines", ("zset",)),
    # What the writer needs until a migration is finished.
    KeyPattern("staged", "<prefix>_ferryman.staged.<queue>", ("hash",)),
    KeyPattern("staged_order", "<prefix>_ferryman.staged_order.<queue>", ("zset",)),
    KeyPattern("staged_list", "<prefix>_ferryman.staged_list.<step>.<queue>", ("list",), {"step": "-?[0-9]{1,9}"}),
    KeyPattern("bucket", "<prefix><queue><sep><step>", ("list",), {"step": "-?[1-9][0-9]{0,8}", "sep": SEP}),
    KeyPattern("queue", "<prefix><queue>", ("list",)),
)

LISTS = ("queue", "bucket")
"""The roles that any name may have; all others are told by their name alone."""

DEFAULT_QUEUE = "celery"

PROVEN = "proven steps"
"""The registry of buckets in which a message of just this priority stands."""

PREFIX_FINDER = PrefixFinder(PATTERNS, {"unacked", "index", "binding", "permanent"}, prefix=".*")
"""Publishing to a queue binds it first, so there is no keyspace without a binding table."""


@lru_cache(maxsize=64)
def layout(prefix: str, settings: Settings = USUAL) -> KeyLayout:
    """All keys of the keyspace under ``global_keyprefix``."""
    unacked, index, mutex = settings.unacked_key, settings.unacked_index_key, settings.unacked_mutex_key
    return KeyLayout(PATTERNS, prefix=prefix, unacked=unacked, index=index, mutex=mutex, sep=settings.separator)


def settings_of(keyspace: Keyspace) -> Settings:
    """What the URL of a keyspace says of its processes."""
    found = getattr(keyspace.family, "settings", USUAL)
    return found if isinstance(found, Settings) else USUAL


def steps_of(keyspace: Keyspace) -> tuple[int, ...]:
    """The buckets of a keyspace: as the URL says, or the usual ones with those that messages of just this priority prove."""
    settings = settings_of(keyspace)
    proven = keyspace.totals.names.get(PROVEN, ())
    return settings.steps if settings.priority_steps is not None or not proven else tuple(sorted({*STEPS, *map(int, proven)}))


def bucket_key(prefix: str, queue: str, step: int, settings: Settings = USUAL) -> bytes:
    """The list of one bucket of a queue."""
    names = layout(prefix, settings)
    return names.key("bucket", queue=queue, step=str(step)) if step else names.key("queue", queue=queue)


def step_of(priority: Any, steps: Sequence[int] = STEPS) -> int:
    """The bucket into which kombu puts a message of this priority; what is no number counts as 0."""
    try:
        number = int(priority)
    except (TypeError, ValueError, OverflowError):
        number = 0
    return steps[bisect(steps, min(max(number, steps[0]), steps[-1])) - 1]


def is_control(queue: str) -> bool:
    """Whether a queue carries remote control or events, which are worthless as soon as nobody waits for them."""
    return queue.endswith(".pidbox") or queue == "celeryev" or queue.startswith("celeryev.")


def is_reply(queue: str) -> bool:
    """Whether a queue holds the answers to one caller's remote control commands."""
    return queue.endswith(".reply.celery.pidbox")


def can_be_queue(name: str, settings: Settings = USUAL) -> bool:
    """Whether kombu could use a queue of this name, and a reader would take its list for one."""
    if not is_unicode(name) or SEP in name or settings.separator in name or is_control(name):
        return False
    return [match.role for match in layout("", settings).matches(name.encode())] == ["queue"]


def bucket_label(queue: str, step: int) -> str:
    """A bucket as label of the totals."""
    return f"{queue}{SEP}{step}"


def parse_bucket_label(label: str) -> tuple[str, int]:
    """The queue and the step behind ``bucket_label``."""
    queue, _, step = label.rpartition(SEP)
    return queue, int(step)
