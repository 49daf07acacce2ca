"""Journals: what the migrations to a database have noted there, those that run and those that are over. Only reads.

They stand in no index, so all key names are looked through, for some seconds at most. Called by the web page.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from ..migrations.run import HOME, SLOT_FIELD
from ..schema.connection.address import Address
from ..schema.connection.connect import open_client
from ..schema.connection.pipeline import mapping, open_pipeline
from ..schema.text import to_text

MOST_SECONDS = 10.0
MOST = 500
"""Journals that are read."""
COUNT = 5_000
"""Key names of one round trip."""


@frozen
class MigrationStatus:
    """One migration."""

    epoch: str
    source: str
    target: str
    is_finished: bool
    layout: str
    started_ms: int | None
    finished_ms: int | None
    choices: Mapping[str, Any]
    summary: Mapping[str, Any]
    """What a finished one has done."""
    partitions: int
    """Parts of which one that runs has noted something."""
    partitions_done: int
    written: int
    """Jobs that these parts have written."""


@frozen
class Journals:
    """The migrations of a database, the newest first."""

    migrations: tuple[MigrationStatus, ...]
    scanned_all: bool


def journals(address: Address) -> Journals:
    """Looks through a database. Raises ServerError."""
    deadline = time.monotonic() + MOST_SECONDS
    with open_client(address) as client, open_pipeline(client) as pipe:
        names: set[bytes] = set()
        cursor, finished = 0, False
        while time.monotonic() < deadline:
            reply = pipe.ask("SCAN", cursor, "MATCH", HOME + ":*", "COUNT", COUNT, "TYPE", "hash")
            cursor = int(reply[0])
            names.update(reply[1])
            if not cursor:
                finished = True
                break
        parts: dict[bytes, list[bytes]] = {}
        epochs = []
        for name in names:
            epoch, is_part, _ = name.partition(b":part:")
            if is_part:
                parts.setdefault(epoch, []).append(name)
            elif not name.startswith(HOME.encode() + b":target:"):
                epochs.append(name)
        found = []
        for name in sorted(epochs)[:MOST]:
            those = parts.get(name, ())
            fields, *progress = pipe.call([("HGETALL", name), *(("HGETALL", each) for each in those)])
            if not isinstance(fields, Exception):
                told = [mapping(each) for each in progress if not isinstance(each, Exception)]
                found.append(_status(name, mapping(fields), told))
    found.sort(key=lambda each: (each.is_finished, -(each.started_ms or 0)))
    return Journals(tuple(found), finished)


def _status(name: bytes, raw: Mapping[bytes, bytes], parts: list[dict[bytes, bytes]]) -> MigrationStatus:
    fields = {to_text(key): to_text(value) for key, value in raw.items()}
    return MigrationStatus(
        to_text(name.rpartition(b":")[2]),
        fields.get("source", ""),
        fields.get("target", ""),
        fields.get("state") == "finished",
        fields.get("layout", ""),
        _number(fields.get("started_ms")),
        _number(fields.get("finished_ms")),
        _object(fields.get("choices")),
        _object(fields.get("summary")),
        len(parts),
        sum(b"done" in part for part in parts),
        sum(_written(part) for part in parts),
    )


def _written(part: Mapping[bytes, bytes]) -> int:
    own = _number(to_text(part.get(b"count", b""))) or 0
    return own or sum(_number(to_text(value)) or 0 for field, value in part.items() if field.startswith(SLOT_FIELD))


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 19 else None


def _object(text: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
