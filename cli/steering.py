"""Shared by ``pause``, ``resume``, ``drain`` and ``steer``: whose actions are recorded where, and the question before many go."""

from __future__ import annotations

import getpass
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from ..migrations.engine import Progress as Report
from ..operations.actions import JsonLines
from ..operations.steering import Bulk, Controls, Progress, open_steering
from ..schema.connection.address import DEFAULT_FAMILY, Address
from ..schema.errors import UsageError
from ..schema.native.scripts.results import Task
from ..schema.text import show
from .output import Output

F = TypeVar("F", bound=Callable[..., Any])

AUDIT_LOG = "FERRYMAN_AUDIT_LOG"
"""Environment variable: where actions are recorded, unless an option says."""

audit_log_option = click.option(
    "--audit-log",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar=AUDIT_LOG,
    show_envvar=True,
    metavar="FILE",
    help="Append a line of JSON for each action: who, when, what, and what came of it.",
)
yes_option = click.option("--yes", "-y", is_flag=True, help="Don't ask before many jobs are changed.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only say how many jobs it would be.")


def user() -> str:
    """Who runs this command, by the name of the account."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in many containers
        return ""


@contextmanager
def controls(url: Address, audit_log: Path | None, app: Any = None) -> Iterator[Controls]:
    """The actions on the keyspace, which are recorded if that was asked for. Raises UsageError.

    ``app``: the Celery app whose result backend and monitors learn of the tasks that are cancelled.
    """
    sinks = () if audit_log is None else (JsonLines.at(audit_log),)
    with telling_app(app) as tell, open_steering(url, by=user(), sinks=sinks, tell_cancelled=tell) as found:
        yield found


@contextmanager
def telling_app(app: Any) -> Iterator[Callable[[Sequence[Task]], None] | None]:
    """What tells an app's result backend and monitors of tasks that are gone; None for no app."""
    if app is None:
        yield None
        return
    from ..transport.celery.revoked_tasks import report_revoked

    with app.connection_for_write() as connection:
        yield lambda tasks: report_revoked(app, tasks, connection.transport)


def untold(url: Address, app: Any, what: str) -> str:
    """What to say to who cancels tasks of which no result backend is told; "" where one is, and where there are no tasks.

    ``what``: the command that would tell it, behind ``celery -A APP ferryman``.
    """
    if app is not None or url.family not in (DEFAULT_FAMILY, "kombu"):
        return ""
    hint = f"; celery -A APP ferryman {what} tells that of the app" if url.family == DEFAULT_FAMILY else ""
    return f"no result backend was told of it{hint}"


def tell_each(
    queues: Iterable[str], action: str, change: Callable[[str], bool], changed: str, unchanged: str, output: Output
) -> None:
    """Does something to each of the queues, once, and says whether that has changed anything."""
    for queue in dict.fromkeys(queues):
        has_changed = change(queue)
        if output.json:
            output.line({"queue": queue, "action": action, "changed": has_changed})
        else:
            output.say(f"queue {queue}: {changed if has_changed else unchanged}")


def ask(question: str, output: Output, yes: bool) -> None:
    """Asks whether to go on. Raises click.Abort for a no, and UsageError where nobody can be asked."""
    if yes:
        return
    if output.json or not sys.stdin.isatty():
        raise UsageError("nothing was done: say --yes to change many jobs without being asked, or --dry-run to count them")
    click.confirm(show(question, 500), abort=True, err=True)


def telling(report: Report, phase: str) -> Progress:
    """Takes the progress of a bulk action, for a bar."""

    def tell(found: Bulk) -> None:
        report(phase, found.looked_at, None)

    return tell


def numbers(found: Bulk) -> dict[str, int]:
    """What a bulk action has done, for JSON."""
    return {"done": found.done, "left": found.left}
