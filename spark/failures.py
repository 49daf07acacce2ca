"""Failures: what goes wrong in Spark and its executors, as the one error that it comes down to, in one line.

Spark answers a failed task with pages of stack traces of two languages. What a task has raised on purpose is found in them and
raised again on the driver; so is what goes wrong around the tasks: a Python without ferryman, executors that die. Called by
whatever starts Spark or lets it work, and by the tasks themselves, which say where they are.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from ..schema import errors
from ..schema.errors import FerrymanError, ServerError, UsageError


@contextlib.contextmanager
def spark_errors() -> Iterator[None]:
    """Turns an exception of Spark's inside the block into the FerrymanError that it comes down to.

    Only a mistake in a task's own code passes as it is.
    """
    try:
        yield
    except (PySparkException, Py4JError) as failure:
        raised = named_error(str(failure))
        if raised is None:
            raise
        raise raised from failure


_OURS = re.compile(rf"{re.escape(errors.__name__)}\.(\w+): (.+)")
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_OTHER_PYTHON = re.compile(r"\[PYTHON_VERSION_MISMATCH\] (.+)")
_TRACEBACK = "Traceback (most recent call last)"
_REASONS = (re.compile(r"Job aborted due to stage failure: .+"), re.compile(r"(?<=^: ).+", re.MULTILINE), re.compile(r".+"))


def named_error(text: str) -> FerrymanError | None:
    """What the text of a failure comes down to; None for a mistake in a task's code."""
    # Python ends a traceback with the error itself, so the last one counts.
    for name, message in reversed(_OURS.findall(text)):
        error_type = getattr(errors, name, None)
        if isinstance(error_type, type) and issubclass(error_type, FerrymanError):
            return error_type(message)
    if missing := _NO_MODULE.search(text):
        return UsageError(
            f"the Python of Spark's executors has no module {missing[1]!r}: install ferryman[spark] there, or send it along "
            "(docs/spark.md, Spark cluster)"
        )
    if other := _OTHER_PYTHON.search(text):
        return UsageError(f"Spark's executors run another Python than the driver: {other[1]}")
    if _TRACEBACK in text:
        return None
    reasons = (found[0] for pattern in _REASONS if (found := pattern.search(text)))
    return ServerError(f"Spark gave up: {next(reasons, 'it gives no reason')}")
