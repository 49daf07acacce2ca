"""Told: what a stream of events has told already, in a folder, so that a restart makes it neither repeat nor forget anything.

    look-<number>/events     what was told at this look: Arrow IPC
    look-<number>/told       the identities of what stood there and has been told by now: sorted, 64 bits each
    look-<number>/noticed    the same of what was seen for the first time, and is told if it is seen again

A look's folder appears whole or not at all, and never changes: whoever asks for the same look again is told the same. Two
attempts of one task may make it side by side; the first one counts. Memory: some 35 bytes for each finding that stands. Called
by the streams.
"""

from __future__ import annotations

import shutil
import uuid
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from attrs import field, frozen

from ..schema.errors import UsageError
from .poll import EVENTS, Event, EventKind
from .tables import batches

BEGINNING = 0
"""The number of no look, from which a new stream begins."""
LOOK = "look-"

Identities = Sequence[int]


@frozen
class Standing:
    """What a look has seen."""

    told: Identities = field(factory=lambda: array("Q"), repr=False)
    noticed: Identities = field(factory=lambda: array("Q"), repr=False)


@frozen
class Told:
    """The memory of one stream."""

    folder: Path

    def begin(self) -> None:
        """Makes the folder of a new stream; one that is there already stays as it is."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def events(self, look: int) -> Iterator[pa.RecordBatch] | None:
        """What was told at a look; None if it has not been made."""
        path = self._path(look) / "events"
        return _read(path) if path.exists() else None

    def tell(self, seen: Iterable[Event], last: int, look: int, *, silently: bool = False) -> None:
        """Makes a look, if it has not been made: keeps what of ``seen`` is new since the ``last`` one.

        A finding is new when it is seen a second time: a job that moves while it is read may look broken once.

        ``silently``: what a stream's first look sees counts as told. Raises UsageError when the folder is not this stream's.
        """
        looks = self._looks()
        if look in looks:
            return
        before = self._before(last, looks)
        silent = silently and before is None
        draft = self.folder / f"draft-{uuid.uuid4().hex}"
        draft.mkdir()
        try:
            after = _write_events(draft / "events", seen, before or Standing(), silent=silent)
            for name in ("told", "noticed"):
                (draft / name).write_bytes(_sorted(getattr(after, name)))
            try:
                draft.rename(self._path(look))
            except OSError:
                if look not in self._looks():
                    raise
                # Another attempt has made it meanwhile.
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def forget(self, look: int) -> None:
        """Drops all that was told before a look. The last look that was made stays in any case."""
        looks = self._looks()
        kept = look if look in looks else max(looks, default=BEGINNING)
        for path in self.folder.iterdir():
            if path != self._path(kept):
                shutil.rmtree(path, ignore_errors=True)

    def _before(self, last: int, looks: set[int]) -> Standing | None:
        """What the last of these looks saw; None before the first one."""
        if not self.folder.is_dir():
            raise UsageError(
                f"{self.folder}: what this stream has told is not here; option 'state' must name a folder that driver and "
                "executors share, and that is kept as long as the query's checkpoint"
            )
        # The batch of the last look may have been one that nobody has read: the one before it counts then.
        newest = last if last in looks else max(looks, default=None)
        if newest is None:
            return None
        if newest > last:
            raise UsageError(
                f"{self.folder}: here stands what another query has told, or this one after its checkpoint was made; give each "
                "query a folder of its own in option 'state', and a new one together with a new checkpoint"
            )
        told, noticed = (memoryview((self._path(newest) / name).read_bytes()).cast("Q") for name in ("told", "noticed"))
        return Standing(told, noticed)

    def _looks(self) -> set[int]:
        return {int(path.name.removeprefix(LOOK)) for path in self.folder.glob(f"{LOOK}*")}

    def _path(self, look: int) -> Path:
        return self.folder / f"{LOOK}{look}"


def _write_events(path: Path, seen: Iterable[Event], before: Standing, *, silent: bool) -> Standing:
    """Writes what is to be told, and returns what the next look must know."""
    told, noticed = array("Q"), array("Q")

    def news() -> Iterator[Event]:
        for event in seen:
            identity = event.identity
            known = silent or _has(before.told, identity)
            if known or event.kind is EventKind.DEAD or _has(before.noticed, identity):
                told.append(identity)
                if not known:
                    yield event
            else:
                noticed.append(identity)

    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, EVENTS.arrow) as stream:
        for batch in batches(EVENTS, news()):
            stream.write_batch(batch)
    return Standing(told, noticed)


def _read(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(str(path)) as file, pa.ipc.open_stream(file) as stream:
        yield from stream


def _has(identities: Identities, identity: int) -> bool:
    index = bisect_left(identities, identity)
    return index < len(identities) and identities[index] == identity


def _sorted(identities: Identities) -> memoryview:
    """Without making a Python number of each."""
    buffers = [None, pa.py_buffer(identities)]
    return memoryview(pa.Array.from_buffers(pa.uint64(), len(identities), buffers).sort().buffers()[1])
