"""Status: the exit statuses that scripts rely on, and how errors become one line and one of them.

0  fine: the command did what it was asked to do
1  audit has findings of severity warning or error; verify has differences; with --strict, jobs stay at the source; a job asked
   for by its id is missing
2  wrong usage: an option, a URL, a keyspace that is not there, a target that a migration may not write to
3  a server or a file failed
130  interrupted (Ctrl-C); 141 the reader of the output went away
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from enum import IntEnum

import click

from ..schema.errors import FerrymanError, UsageError
from ..schema.text import show
from .output import LONGEST

DEBUG = "FERRYMAN_DEBUG"
"""Environment variable: with a value in it, errors show their traceback."""


class Status(IntEnum):
    """What a command returns."""

    FINE = 0
    FINDINGS = 1
    USAGE = 2
    FAILED = 3
    INTERRUPTED = 130
    PIPE_CLOSED = 141


def guarded(run: Callable[[], object]) -> int:
    """Runs a command and returns its exit status; an error becomes one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that knows fewer letters than a queue's name shows escapes instead.
            stream.reconfigure(errors="backslashreplace")
    try:
        result = run()
    except click.exceptions.Exit:
        raise
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "ferryman"
        return _complain(f"{error.format_message()} (see {command} --help)", Status.USAGE)
    except (click.Abort, KeyboardInterrupt):
        return _complain("interrupted", Status.INTERRUPTED)
    except BrokenPipeError:
        # Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return Status.PIPE_CLOSED
    except UsageError as error:
        return _fail(error, str(error), Status.USAGE)
    except (FerrymanError, OSError) as error:
        return _fail(error, str(error), Status.FAILED)
    except Exception as error:  # noqa: BLE001 - the last resort: nobody above could show it in a better way
        hint = f"unexpected {type(error).__name__}; set {DEBUG}=1 and run it again for the traceback, and please report it"
        return _fail(error, hint, Status.FAILED)
    return int(result) if isinstance(result, int) else Status.FINE


def _fail(error: Exception, text: str, status: Status) -> Status:
    if os.environ.get(DEBUG):
        raise error
    return _complain(text, status)


def _complain(text: str, status: Status) -> Status:
    line = show(" ".join(text.split()), LONGEST)
    click.echo(f"ferryman: {line}", err=True)
    return status
