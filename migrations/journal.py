"""Journal: what the target's database remembers about a migration, from the first byte written to long after the last.

Keys, all in the database of the target and outside every family's prefix; J is ``ferryman-migration:{journal}``:

    J:<epoch>               hash, one for each pair of source and target
        state        running | finished
        run          number of the current run; every batch is written only while it stands (gone when finished)
        source, target                       addresses for people, without passwords
        layout       the engine's word for how it cuts the work into partitions; a resumed run must cut it the same way
        reading      the engine's word for where it keeps what it has read of the source, if it does
        choices      JSON: the plan's choices (moment, --active, --lossy); verify takes them over
        started_ms, finished_ms, summary     by the target's clock; the summary as JSON
    J:<epoch>:part:<part>   hash, one for each partition: see partition_writer.py; gone when finished
    J:target:<digest>       hash: the epoch that writes to this prefix now; gone when finished

and in a cluster, in the slot of every hash tag that jobs have:

    ferryman-migration:{<tag>}:<epoch>:fence         hash: the run that may write there; when finished, one that never was
    ferryman-migration:{<tag>}:<epoch>:lane:<part>   hash, one for each partition: see partition_writer.py; gone when finished

A finished journal stays, and the fences of a cluster with it: they keep a second run, and writers that were given up and live on,
from bringing back jobs that workers of the target have done since. Only ``begin``, ``finish`` and the writers of partitions write
here. Called by the engines, and by the command line to find earlier choices.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

from attrs import frozen

from ..schema.connection.address import Address
from ..schema.connection.pipeline import mapping, pairs
from ..schema.errors import MigrationRefused, ServerError
from ..schema.family import Command
from ..schema.text import show, to_text
from .engine import Summary
from .fence import Condition, Fence
from .partition_writer import send
from .plan import Plan
from .run import FINISH, HOME, SLOT_FIELD, Run, journal_glob, journal_key
from .store import Store


@frozen
class Record:
    """What the journal says of an earlier run of the same migration."""

    plan: Plan
    """The plan with the choices of that run."""
    token: int | None
    """The run that may write now; None when the migration is finished."""
    layout: str
    reading: str | None
    summary: Summary | None
    """What a finished migration did."""

    @property
    def finished(self) -> bool:
        return self.token is None


def find(store: Store, plan: Plan) -> Record | None:
    """The record of an earlier run, if there was one."""
    key = journal_key(plan.epoch)
    (stored,) = store.ask([("HGETALL", key)])
    raw = {to_text(name): to_text(value) for name, value in pairs(stored)}
    if not raw:
        return None
    try:
        return Record(
            plan=plan.with_choices(json.loads(raw["choices"])),
            token=int(raw["run"]) if "run" in raw else None,
            layout=raw["layout"],
            reading=raw.get("reading"),
            summary=Summary.from_dict(json.loads(raw["summary"])) if "summary" in raw else None,
        )
    except (ValueError, KeyError, TypeError) as error:
        fault = f"the journal {to_text(key)} is damaged ({show(repr(error))})"
        raise MigrationRefused(f"{fault}; delete the keys {journal_glob(plan.epoch)} if its migration is over") from None


def check(store: Store, plan: Plan, layout: str, *, resume: bool) -> Record | None:
    """Whether the migration may begin, go on, or is done already: the record of the run before, if any. Writes nothing.

    Raises MigrationRefused, with what to do next, when the target holds jobs that are not this migration's, when the migration
    is unfinished and ``resume`` is false, and when the run before was made with other options or another engine.
    """
    earlier = find(store, plan)
    key = to_text(journal_key(plan.epoch))
    if earlier is None:
        _check_target(store, plan)
    elif not earlier.finished:
        if not resume:
            raise MigrationRefused(f"an earlier run of this migration is unfinished (journal {key}); go on with --resume")
        if earlier.layout != layout:
            raise MigrationRefused(f"the unfinished migration was begun with engine {earlier.layout}, not {layout}; resume it so")
        if (earlier.plan.active, earlier.plan.lossy) != (plan.active, plan.lossy):
            begun = f"--active {earlier.plan.active}" + (" --lossy" if earlier.plan.lossy else "")
            raise MigrationRefused(f"the unfinished migration was begun with {begun}; resume it with the same options")
    return earlier


def begin(
    store: Store, source: Address, target: Address, plan: Plan, layout: str, earlier: Record | None, reading: str | None = None
) -> Run:
    """Opens the journal for a run that ``check`` allowed; writers of all earlier runs are shut out from here on.

    ``reading``: where a resumed run may find what this one has read. Raises StaleWriter when another run began since the check.
    """
    run = Run(plan.epoch, 1 if earlier is None or earlier.token is None else earlier.token + 1)
    owner = None if earlier is None else plan.epoch.encode()
    fence: Fence = (
        Condition(run.key, "run", b"%d" % (run.token - 1) if earlier else None),
        Condition(run.key, "state", b"running" if earlier else None),
        Condition(_lock(plan), "epoch", owner),
    )
    commands: list[Command] = [
        ("HSET", run.key, "run", run.token, "state", "running"),
        ("HSET", _lock(plan), "epoch", plan.epoch),
    ]
    if earlier is None:
        about = {
            "source": source.display(),
            "target": target.display(),
            "layout": layout,
            "choices": json.dumps(plan.choices()),
            "started_ms": str(store.clock_ms()),
        }
        commands.append(("HSET", run.key, *(word for pair in about.items() for word in pair)))
    if reading is not None:
        commands.append(("HSET", run.key, "reading", reading))
    store.apply(fence, commands)
    return run


def finish(store: Store, run: Run, plan: Plan, commands: Sequence[Command], summary: Summary, partitions: Iterable[str]) -> None:
    """Sends the family's last commands, then closes the journal: from here on nobody writes in the name of this migration.

    ``commands`` are what ``family.finish`` gave, ``partitions`` the names of all. Raises StaleWriter when another run took over,
    and ServerError when the target has lost what a partition had written.
    """
    names = list(partitions)
    by_tag = _closed_slots(store, run, names)
    tags = dict.fromkeys((*(tag for tag in by_tag if tag is not None), *send(store, run, commands)))
    for tag in tags:
        # Taken over by a run that will never be, the slot has nobody who may write.
        store.apply(run.slot_fence(tag), [("HSET", run.fence_key(tag), "run", run.token + 1)])
    done: list[Command] = [
        ("HSET", run.key, "state", "finished", "finished_ms", store.clock_ms(), "summary", json.dumps(summary.to_dict())),
        ("HDEL", run.key, "run", "reading"),
        ("DEL", _lock(plan), *(run.partition_key(partition) for partition in names)),
    ]
    store.apply(run.fence, done)
    for tag in tags:
        store.ask(
            [("DEL", run.progress_key(tag, FINISH), *(run.progress_key(tag, partition) for partition in by_tag.get(tag, ())))]
        )


def _closed_slots(store: Store, run: Run, partitions: Sequence[str]) -> dict[bytes | None, dict[str, int]]:
    """How many jobs each partition has under each tag, once it is sure that they are there.

    A server may lose in a failover what it had confirmed: the partition in question is opened again, and a ServerError says so.
    """
    closed = [mapping(fields) for fields in store.ask([("HGETALL", run.partition_key(partition)) for partition in partitions])]
    by_tag: dict[bytes | None, dict[str, int]] = {}
    lost = [partition for partition, fields in zip(partitions, closed, strict=True) if b"done" not in fields]
    for partition, fields in zip(partitions, closed, strict=True):
        for name in fields:
            if name.startswith(SLOT_FIELD):
                by_tag.setdefault(name.removeprefix(SLOT_FIELD) or None, {})[partition] = int(fields[name])
    for tag, counts in by_tag.items():
        standing = store.ask([("HGET", run.progress_key(tag, partition), "count") for partition in counts])
        lost += [partition for partition, count in zip(counts, standing, strict=True) if int(count or 0) != counts[partition]]
    if lost:
        store.apply(run.fence, [("HDEL", run.partition_key(partition), "done") for partition in lost])
        raise ServerError(
            f"the target has lost what it had confirmed, of {len(set(lost))} parts of the migration; was there a failover? "
            "Go on with --resume: what is missing is written again"
        )
    return by_tag


def _check_target(store: Store, plan: Plan) -> None:
    (other,) = store.ask([("HGET", _lock(plan), "epoch")])
    if other is not None:
        raise MigrationRefused(
            f"an unfinished migration writes to prefix {plan.target_prefix!r} (journal {HOME}:{show(other)}); finish it first"
        )
    key_found = store.occupant(plan.writer, plan.target_prefix)
    if key_found is not None:
        raise MigrationRefused(
            f"the target's prefix {plan.target_prefix!r} holds jobs already (key {show(key_found)}); "
            "choose a free one with …?prefix=NAME in the target's URL"
        )


def _lock(plan: Plan) -> bytes:
    """The key that keeps a second source out of the target while it is written."""
    digest = hashlib.sha256(f"{plan.target_family}\n{plan.target_prefix}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{HOME}:target:{digest}".encode()
