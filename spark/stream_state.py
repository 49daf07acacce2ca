"""Stream state: what a stream of events has reported, in a folder, so that a restart makes it neither repeat nor forget anything.

    look-<number>/events     what was reported at this poll: Arrow IPC
    look-<number>/told       the identities of what was seen and has been reported by now: sorted, 64 bits each
    look-<number>/noticed    the same of what was seen for the first time, and is reported if it is seen again

A poll's folder appears whole or not at all, and never changes: whoever asks for the same poll again gets the same. Two
attempts of one task may make it side by side; the first one counts. Memory: some 35 bytes for each finding that holds. Called
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

from ..migrations.engine.tables import batches
from ..schema.errors import UsageError
from .poll import EVENTS, Event, EventKind

BEGINNING = 0
"""The number of no poll, from which a new stream begins."""
FOLDER_PREFIX = "look-"
REPORTED, PENDING = "told", "noticed"
"""The names of files, as above."""

Identities = Sequence[int]


@frozen
class SeenAtPoll:
    """What a poll has seen."""

    reported: Identities = field(factory=lambda: array("Q"), repr=False)
    pending: Identities = field(factory=lambda: array("Q"), repr=False)


@frozen
class StreamState:
    """The state of one stream."""

    folder: Path

    def begin(self) -> None:
        """Makes the folder of a new stream; one that is there already stays as it is."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def count(self, poll: int) -> int | None:
        """How many events were reported at a poll; None if it has not been made."""
        path = self._path(poll) / "events"
        return sum(batch.num_rows for batch in _read(path)) if path.exists() else None

    def events(self, poll: int, first: int = 0, until: int | None = None) -> Iterator[pa.RecordBatch]:
        """What was reported at a poll that has been made, of its rows from ``first`` those before ``until``."""
        start = 0
        for batch in _read(self._path(poll) / "events"):
            end = start + batch.num_rows if until is None else min(start + batch.num_rows, until)
            if max(start, first) < end:
                yield batch.slice(max(start, first) - start, end - max(start, first))
            start += batch.num_rows

    def record(self, seen: Iterable[Event], last: int, poll: int, *, silently: bool = False) -> None:
        """Records a poll, unless it has been: keeps what of ``seen`` is new since the ``last`` one.

        A finding is new when it is seen a second time: a job that moves while it is read may look broken once.

        ``silently``: what a stream's first poll sees counts as reported. Raises UsageError when the folder is not this stream's.
        """
        polls = self._polls()
        if poll in polls:
            return
        before = self._before(last, polls)
        silent = silently and before is None
        draft = self.folder / f"draft-{uuid.uuid4().hex}"
        draft.mkdir()
        try:
            after = _write_events(draft / "events", seen, before or SeenAtPoll(), silent=silent)
            for name, identities in ((REPORTED, after.reported), (PENDING, after.pending)):
                (draft / name).write_bytes(_sorted(identities))
            try:
                draft.rename(self._path(poll))
            except OSError:
                if poll not in self._polls():
                    raise
                # Another attempt has made it meanwhile.
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def prune(self, poll: int) -> None:
        """Drops all that was reported before a poll. The last poll that was made stays in any case."""
        polls = self._polls()
        last = poll if poll in polls else max(polls, default=BEGINNING)
        for path in self.folder.iterdir():
            if path != self._path(last):
                shutil.rmtree(path, ignore_errors=True)

    def _before(self, last: int, polls: set[int]) -> SeenAtPoll | None:
        """What the last of these polls saw; None before the first one."""
        if not self.folder.is_dir():
            raise UsageError(
                f"{self.folder}: what this stream has reported is not here; option 'state' must name a folder that driver and "
                "executors share, and that is kept as long as the query's checkpoint"
            )
        # The batch of the last poll may have been one that nobody has read: the one before it counts then.
        newest = last if last in polls else max(polls, default=None)
        if newest is None:
            return None
        if newest > last:
            raise UsageError(
                f"{self.folder}: this is what another query has reported, or this one after its checkpoint was made; give each "
                "query a folder of its own in option 'state', and a new one together with a new checkpoint"
            )
        reported, pending = (memoryview((self._path(newest) / name).read_bytes()).cast("Q") for name in (REPORTED, PENDING))
        return SeenAtPoll(reported, pending)

    def _polls(self) -> set[int]:
        return {int(path.name.removeprefix(FOLDER_PREFIX)) for path in self.folder.glob(f"{FOLDER_PREFIX}*")}

    def _path(self, poll: int) -> Path:
        return self.folder / f"{FOLDER_PREFIX}{poll}"


def _write_events(path: Path, seen: Iterable[Event], before: SeenAtPoll, *, silent: bool) -> SeenAtPoll:
    """Writes what is to be reported, and returns what the next poll must know."""
    reported, pending = array("Q"), array("Q")

    def news() -> Iterator[Event]:
        for event in seen:
            identity = event.identity
            known = silent or _has(before.reported, identity)
            if known or event.kind is EventKind.DEAD or _has(before.pending, identity):
                reported.append(identity)
                if not known:
                    yield event
            else:
                pending.append(identity)

    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, EVENTS.arrow) as stream:
        for batch in batches(EVENTS, news()):
            stream.write_batch(batch)
    return SeenAtPoll(reported, pending)


def _read(path: Path) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(str(path)) as file, pa.ipc.open_stream(file) as stream:
        yield from stream


def _has(identities: Identities, identity: int) -> bool:
    index = bisect_left(identities, identity)
    return index < len(identities) and identities[index] == identity


def _sorted(identities: Identities) -> memoryview:
    """Without making a Python number of each."""
    buffers = [None, pa.py_buffer(identities)]
    return memoryview(pa.Array.from_buffers(pa.uint64(), len(identities), buffers).sort().buffers()[1])
