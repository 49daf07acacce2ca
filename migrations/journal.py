"""Journal: what the target's database remembers about a migration, from the first byte written to long after the last.

Keys, all in the database of the target and outside every family's prefix:

    ferryman-migration:<epoch>               hash, one for each pair of source and target
        state        running | finished
        run          number of the current run; every batch is written only while it stands (gone when finished)
        source, target                       addresses for people, without passwords
        layout       the engine's word for how it cuts the work into parts; a resumed run must cut it the same way
        choices      JSON: the plan's choices (moment, --active, --lossy); verify takes them over
        started_ms, finished_ms, summary     by the target's clock; the summary as JSON
    ferryman-migration:<epoch>:part:<part>   hash, one for each part: see writing.py; gone when finished
    ferryman-migration:target:<digest>       hash: the epoch that writes to this prefix now; gone when finished

A finished journal stays: it is what keeps a second run from bringing back jobs that workers of the target have done since.
Only ``begin``, ``finish`` and the parts write here. Called by the engines, and by the command line to find earlier choices.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

import redis
from attrs import frozen

from ..schema.address import Address
from ..schema.errors import MigrationRefused
from ..schema.family import Command
from ..schema.text import show, to_text
from .engine import Summary
from .fence import Condition, Fence, transact
from .plan import Plan
from .survey import clock_ms, occupant
from .wire import pairs, wire
from .writing import JOURNAL, Run, journal_key, send


@frozen
class Record:
    """What the journal says of an earlier run of the same migration."""

    plan: Plan
    """The plan with the choices of that run."""
    token: int | None
    """The run that may write now; None when the migration is finished."""
    layout: str
    summary: Summary | None
    """What a finished migration did."""

    @property
    def finished(self) -> bool:
        return self.token is None


def find(client: redis.Redis, plan: Plan) -> Record | None:
    """The record of an earlier run, if there was one."""
    key = journal_key(plan.epoch)
    with wire(client) as line:
        raw = {to_text(name): to_text(value) for name, value in pairs(line.ask("HGETALL", key))}
    if not raw:
        return None
    try:
        return Record(
            plan=plan.with_choices(json.loads(raw["choices"])),
            token=int(raw["run"]) if "run" in raw else None,
            layout=raw["layout"],
            summary=Summary.from_dict(json.loads(raw["summary"])) if "summary" in raw else None,
        )
    except (ValueError, KeyError, TypeError) as error:
        fault = f"the journal {to_text(key)} is damaged ({show(repr(error))})"
        raise MigrationRefused(f"{fault}; delete it if its migration is over") from None


def check(client: redis.Redis, plan: Plan, layout: str, *, resume: bool) -> Record | None:
    """Whether the migration may begin, go on, or is done already: the record of the run before, if any. Writes nothing.

    Raises MigrationRefused, with what to do next, when the target holds jobs that are not this migration's, when the migration
    is unfinished and ``resume`` is false, and when the run before was made with other options or another engine.
    """
    earlier = find(client, plan)
    key = to_text(journal_key(plan.epoch))
    if earlier is None:
        _check_target(client, plan)
    elif not earlier.finished:
        if not resume:
            raise MigrationRefused(f"an earlier run of this migration is unfinished (journal {key}); go on with --resume")
        if earlier.layout != layout:
            raise MigrationRefused(f"the unfinished migration was begun with engine {earlier.layout}, not {layout}; resume it so")
        if (earlier.plan.active, earlier.plan.lossy) != (plan.active, plan.lossy):
            begun = f"--active {earlier.plan.active}" + (" --lossy" if earlier.plan.lossy else "")
            raise MigrationRefused(f"the unfinished migration was begun with {begun}; resume it with the same options")
    return earlier


def begin(client: redis.Redis, source: Address, target: Address, plan: Plan, layout: str, earlier: Record | None) -> Run:
    """Opens the journal for a run that ``check`` allowed; writers of all earlier runs are shut out from here on.

    Raises StaleWriter when another run began since the check.
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
            "started_ms": str(clock_ms(client)),
        }
        commands.append(("HSET", run.key, *(word for pair in about.items() for word in pair)))
    with wire(client) as line:
        transact(line, fence, commands)
    return run


def finish(
    client: redis.Redis, run: Run, plan: Plan, commands: Sequence[Command], summary: Summary, parts: Iterable[str]
) -> None:
    """Sends the family's last commands, then closes the journal: from here on nobody writes in the name of this migration.

    ``commands`` are what ``family.finish`` gave, ``parts`` the names of all parts. Raises StaleWriter when another run took over.
    """
    send(client, run.fence, commands)
    done: list[Command] = [
        ("HSET", run.key, "state", "finished", "finished_ms", clock_ms(client), "summary", json.dumps(summary.to_dict())),
        ("HDEL", run.key, "run"),
        ("DEL", _lock(plan), *(run.part_key(part) for part in parts)),
    ]
    with wire(client) as line:
        transact(line, run.fence, done)


def _check_target(client: redis.Redis, plan: Plan) -> None:
    other = client.hget(_lock(plan), "epoch")
    if other is not None:
        raise MigrationRefused(
            f"an unfinished migration writes to prefix {plan.target_prefix!r} (journal {JOURNAL}:{show(other)}); finish it first"
        )
    key_found = occupant(client, plan.writer, plan.target_prefix)
    if key_found is not None:
        raise MigrationRefused(
            f"the target's prefix {plan.target_prefix!r} holds jobs already (key {show(key_found)}); "
            "choose a free one with …?prefix=NAME in the target's URL"
        )


def _lock(plan: Plan) -> bytes:
    """The key that keeps a second source out of the target while it is written."""
    digest = hashlib.sha256(f"{plan.target_family}\n{plan.target_prefix}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{JOURNAL}:target:{digest}".encode()
