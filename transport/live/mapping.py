"""Mapping: which task a job of another system is, and which job a task, as the file of the option ``mapping`` has it.

    [queue.email]                       # a queue; "*" for all that have no table of their own
    tasks = { email = "shop.send" }     # a job's name (in systems without: the queue's) -> the task
    args = "payload"                    # the payload is the one argument; or "kwargs": its fields are the keyword arguments;
                                        # or "module:function": what that makes of it
    only = ["email"]                    # the jobs, by name, that workers of ours take; or
    except = ["audit"]                  # those that they leave
    attempts = 3                        # for jobs that are published here, as the system has it
    backoff = { type = "fixed", delay = 1000 }

A function gets the payload and returns ``(args, kwargs)``; if it has an attribute ``payload``, that is called with the arguments
and keyword arguments of a publish and returns the payload (without: they are published as an envelope). Pure but for ``load``,
which reads the file and imports its functions. Called by the settings, and by ``messages.py``.
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Literal

from attrs import field, frozen

from ...schema.errors import UsageError

ANY_QUEUE = "*"
"""The table of queues that have none of their own."""

Arguments = tuple[list[Any], dict[str, Any]]
"""Positional and keyword arguments."""


@frozen
class QueueMapping:
    """What is said of one queue."""

    tasks: Mapping[str, str] = field(factory=dict)
    """A job's name -> the task."""
    args: Literal["payload", "kwargs"] | Callable[[Any], Any] = "payload"
    only: frozenset[str] | None = None
    """The names of the jobs that are taken; None: all."""
    excluded: frozenset[str] = frozenset()
    """The names of jobs that are not taken."""
    options: Mapping[str, Any] = field(factory=dict)
    """For the family's ``put``: attempts, backoff."""

    def task_of(self, name: str) -> str:
        """The task that a job of this name is."""
        return self.tasks.get(name, name)

    def names_of(self, task: str) -> list[str]:
        """The names of jobs that are this task, a mapped one first."""
        mapped = [name for name, each in self.tasks.items() if each == task]
        return mapped if task in self.tasks else [*mapped, task]

    def takes(self, name: str) -> bool:
        """Whether jobs of this name are for workers of ours."""
        return (self.only is None or name in self.only) and name not in self.excluded

    def known(self, tasks: Collection[str] | None, queue: str, *, has_names: bool) -> frozenset[str] | None:
        """What a worker with these tasks may take: names of jobs, and tasks of envelopes; None for anything.

        ``tasks`` None: a consumer that is no worker, which takes what ``only`` says. ``has_names``: whether a job has a name of
        its own, or that of its queue.
        """
        if tasks is None:
            return self.only if has_names or self.takes(queue) else frozenset()
        taken = {task: [name for name in self.names_of(task) if self.takes(name)] for task in tasks}
        return frozenset(name for task, names in taken.items() if names for name in (task, *names))


@frozen
class JobMapping:
    """The mapping of all queues."""

    queues: Mapping[str, QueueMapping] = field(factory=dict)

    def of(self, queue: str) -> QueueMapping:
        """That of one queue."""
        return self.queues.get(queue) or self.queues.get(ANY_QUEUE) or PLAIN


PLAIN = QueueMapping()
IDENTITY = JobMapping()
"""Without a file: every name is the task's own."""


# Reading the file

KEYS = ("tasks", "args", "only", "except", "attempts", "backoff")
"""What a table may have."""

_loaded: dict[tuple[str, int], JobMapping] = {}


def load(path: str) -> JobMapping:
    """The mapping in a file, read once for each of its versions.

    Raises UsageError that names the file, and the line, table or key that is wrong.
    """
    try:
        changed_at = Path(path).stat().st_mtime_ns
        if (path, changed_at) not in _loaded:
            _loaded[path, changed_at] = parse(Path(path).read_text("utf-8"), path)
    except OSError as error:
        raise UsageError(f"the mapping file {path} can't be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"the mapping file {path} is not UTF-8: {error.reason} at byte {error.start}") from None
    return _loaded[path, changed_at]


def parse(text: str, path: str = "mapping") -> JobMapping:
    """The mapping that a text describes. Raises UsageError as ``load`` does."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not TOML: {error}") from None
    for name in document:
        if name != "queue":
            raise UsageError(f"{path}{_line(text, name)}: unknown table [{name}]; each queue has one, as in [queue.email]")
    queues = document.get("queue", {})
    if not isinstance(queues, dict):
        raise UsageError(f"{path}{_line(text, 'queue')}: queue must be tables, as in [queue.email]")
    return JobMapping({queue: _queue(_Table(path, text, queue, table)) for queue, table in queues.items()})


@frozen
class _Table:
    """One queue's table, and where it stands, for errors."""

    path: str
    text: str
    queue: str
    values: Any

    def wrong(self, key: str, what: str) -> UsageError:
        """The error that this key of the table is wrong."""
        return UsageError(f"{self.path}{_line(self.text, key, self.queue)}: [queue.{self.queue}] {key} {what}")


def _queue(table: _Table) -> QueueMapping:
    if not isinstance(table.values, dict):
        raise UsageError(f"{table.path}{_line(table.text, table.queue)}: queue.{table.queue} must be a table")
    for key in table.values:
        if key not in KEYS:
            raise table.wrong(key, f"is unknown; known are: {', '.join(KEYS)}")
    if "only" in table.values and "except" in table.values:
        raise table.wrong("except", "can't stand beside only; one of them says it all")
    return QueueMapping(
        _tasks(table),
        _args(table),
        _names(table, "only") if "only" in table.values else None,
        _names(table, "except") or frozenset(),
        _options(table),
    )


def _tasks(table: _Table) -> dict[str, str]:
    tasks = table.values.get("tasks", {})
    if not isinstance(tasks, dict):
        raise table.wrong("tasks", 'must be a table of names, as in { email = "shop.send" }')
    for name, task in tasks.items():
        if not isinstance(task, str) or not task or not name:
            raise table.wrong("tasks", f"has {task!r} for {name!r}; it must be the name of a task")
    return tasks


def _args(table: _Table) -> Any:
    given = table.values.get("args", "payload")
    if given in ("payload", "kwargs"):
        return given
    module, _, name = given.partition(":") if isinstance(given, str) else ("", "", "")
    if not module or not name:
        raise table.wrong("args", f'is {given!r}; it must be "payload", "kwargs" or "module:function"')
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise table.wrong("args", f"names {given!r}, which can't be imported: {error}") from error
    if not callable(function):
        raise table.wrong("args", f"names {given!r}, which is no function")
    return function


def _names(table: _Table, key: str) -> frozenset[str]:
    names = table.values.get(key, [])
    if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
        raise table.wrong(key, f'must be a list of names, as in ["{table.queue}"]')
    return frozenset(names)


def _options(table: _Table) -> dict[str, Any]:
    options = {key: table.values[key] for key in ("attempts", "backoff") if key in table.values}
    attempts = options.get("attempts", 1)
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
        raise table.wrong("attempts", f"is {attempts!r}; it must be a whole number above 0")
    backoff = options.get("backoff", True)
    if not isinstance(backoff, bool | dict) and not (isinstance(backoff, int | float) and backoff >= 0):
        raise table.wrong("backoff", f"is {backoff!r}; it must be true, a number of ms, or a table as the system has it")
    return options


def _line(text: str, key: str, queue: str | None = None) -> str:
    """Where a key stands, as ``:<line>``, as far as a look at the lines tells."""
    is_inside = queue is None
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip().lstrip("[").replace('"', "").replace("'", "")
        if line.lstrip().startswith("["):
            is_inside = queue is None or words.startswith(f"queue.{queue}]")
            if queue is None and words.startswith((f"{key}]", f"{key}.", f"queue.{key}]")):
                return f":{number}"
        elif is_inside and words.partition("=")[0].strip() == key:
            return f":{number}"
    return ""
