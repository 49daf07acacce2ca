"""AOF: what an append-only file has beside the snapshot at its beginning. Pure, but for the names of other files.

Its commands are not replayed, and without them the snapshot is not what the server held: they are refused by name. A file may
hold both (Redis 4 to 6), or a folder has them in files of their own (Redis 7 and later). Called by ``rdbfile.py``.
"""

from __future__ import annotations

import glob
import re
from pathlib import Path
from typing import Any

from ..schema.errors import UsageError

COMMANDS = re.compile(rb"\*[0-9]+\r\n|#TS:[0-9]+")
"""The beginning of commands."""
COMMAND = re.compile(rb"\*\d+\r\n\$\d+\r\n([A-Za-z]+)\r\n")
"""The name of one."""
LOOKED_AT = 4096
"""Bytes of commands whose names are shown."""
NAMED = 5
BASE_FILE = re.compile(r"(.+)\.[0-9]+\.base\.rdb")
REWRITE = "Run BGSAVE on its server, and give the file that it writes"


def must_not_begin(path: Path, magic: bytes) -> None:
    """Raises UsageError for a file that begins with commands."""
    if COMMANDS.match(magic):
        raise UsageError(
            f"{path}: an append-only file without a snapshot at its beginning; its commands are not replayed. {REWRITE}"
        )


def must_not_follow(path: Path, data: Any, end: int) -> None:
    """Raises UsageError where commands follow the snapshot, which ends at this byte."""
    if not COMMANDS.match(data, end):
        return
    names = dict.fromkeys(name.decode().upper() for name in COMMAND.findall(data[end : end + LOOKED_AT]))
    some = ", ".join([*names][:NAMED])
    raise UsageError(
        f"{path}: an append-only file; the commands that follow its snapshot, from byte {end} of {len(data)} on ({some} …), are "
        f"not replayed. {REWRITE}, or run BGREWRITEAOF while nobody writes, and give this file then; its first {end} bytes are "
        "the snapshot alone"
    )


def must_stand_alone(path: Path) -> None:
    """Raises UsageError for the base of a folder in which other files have commands that came later."""
    base = BASE_FILE.fullmatch(path.name)
    if base is None:
        return
    for later in sorted(path.parent.glob(f"{glob.escape(base[1])}.*.incr.aof")):
        if later.stat().st_size:
            raise UsageError(
                f"{path}: the base of an append-only file; the commands in {later.name}, which came later, are not replayed. "
                f"{REWRITE}, or copy this one elsewhere to read what it holds"
            )
