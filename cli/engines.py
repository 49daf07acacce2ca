"""Engines by name. Spark is imported only when it is asked for: it takes seconds, and most users don't have it."""

from __future__ import annotations

from ..migrations.engine import Engine
from ..migrations.local import LocalEngine
from ..schema.errors import UsageError


def get_engine(name: str) -> Engine:
    """The engine of this name. Raises UsageError with the command to install it, if it is not there."""
    if name == LocalEngine.name:
        return LocalEngine()
    try:
        from ..spark.engine import SparkEngine
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pyspark", "pyarrow"):
            raise
        raise UsageError(f"--engine spark needs {error.name}: pip install 'ferryman[spark]'") from None
    return SparkEngine()
