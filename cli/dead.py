"""``ferryman dead``: lists dead letters, puts them back to their old places, or deletes them."""

from __future__ import annotations

from collections.abc import Iterator

import click
from attrs import define, evolve, frozen

from ..operations.broker import Broker, open_broker
from ..schema.connection.address import Address
from ..schema.errors import UsageError
from ..schema.job import Job
from ..schema.native.record import Stored, canonical
from ..schema.native.scripts.results import DeadLetter
from ..schema.text import to_text
from .jobs import job_json, time_text
from .options import address_argument, output_option
from .output import Output
from .status import Status

PAGE = 100
"""Jobs that one call reads, puts back or deletes."""
SPARE = ("last died", "task", "last error", "reason")
"""The columns that a narrow terminal does without."""


@frozen
class Dead:
    """One dead job."""

    job: Job
    reason: str

    @classmethod
    def of(cls, queue: str, dead_letter: DeadLetter) -> Dead:
        fields = dead_letter.job.fields
        job = canonical(dead_letter.job.id, queue, Stored(fields, "dead", float(dead_letter.died_at)))
        return cls(evolve(job, priority=dead_letter.job.priority), to_text(fields.get(b"reason", b"")))


@frozen
class Choice:
    """Which dead jobs are meant; empty: all."""

    queues: tuple[str, ...]
    ids: frozenset[str]
    reason: str | None
    name: str | None

    @property
    def is_narrow(self) -> bool:
        """Whether anything was said at all."""
        return bool(self.queues or self.ids or self.reason or self.name)

    def find(self, broker: Broker) -> Iterator[Dead]:
        """Those of all queues, by queue, in the order in which they died."""
        for queue in broker.queues(self.queues):
            seen = 0
            while dead_letters := broker.link.run(broker.scripts.dead_letters(queue, seen=seen, limit=PAGE)):
                seen += len(dead_letters)
                yield from filter(self._fits, (Dead.of(queue, dead_letter) for dead_letter in dead_letters))

    def _fits(self, dead: Dead) -> bool:
        is_named = not self.ids or dead.job.id in self.ids
        return is_named and self.reason in (None, dead.reason) and self.name in (None, dead.job.name)


@define
class Group:
    """Dead jobs that have died alike."""

    last: Dead
    number: int = 0


@click.command()
@address_argument()
@click.argument("action", type=click.Choice(["list", "requeue", "delete"]), default="list")
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option("--queue", "queues", multiple=True, help="Only those of this queue; may be given several times.")
@click.option("--reason", help="Only those that died of this: rejected, expired, delivery_limit, maxlen, malformed …")
@click.option("--task", "name", help="Only those of this task.")
@click.option("--all", "is_all", is_flag=True, help="With requeue and delete: all of them.")
@output_option
def command(
    url: Address,
    action: str,
    ids: tuple[str, ...],
    queues: tuple[str, ...],
    reason: str | None,
    name: str | None,
    is_all: bool,
    output: Output,
) -> Status:
    """List dead letters, put them back to their queues, or delete them.

    A message becomes a dead letter when it is rejected, expires, is delivered too often, has to make room or makes no sense.
    The table groups those that died alike; --format json has each with its id. Requeued messages go to their old places.

    \b
    Examples:
      ferryman dead ferryman://localhost:6379/0
      ferryman dead ferryman://localhost:6379/0 requeue --queue mail --reason delivery_limit
      ferryman dead ferryman://localhost:6379/0 delete --all
    """
    choice = Choice(queues, frozenset(ids), reason, name)
    if action != "list" and not (is_all or choice.is_narrow):
        raise UsageError(f"say which dead letters to {action}: ids, --queue, --reason, --task, or --all")
    with open_broker(url) as broker:
        if action == "list":
            _list(choice.find(broker), output)
        else:
            _settle(action, choice, broker, output)
    return Status.FINE


def _list(found: Iterator[Dead], output: Output) -> None:
    groups: dict[tuple[str, str, str], Group] = {}
    for dead in found:
        if output.json:
            output.line(job_json(dead.job) | {"reason": dead.reason})
            continue
        group = groups.setdefault((dead.job.queue, dead.reason, dead.job.name), Group(dead))
        group.number += 1
        group.last = dead
    if output.json:
        return
    rows = [
        (queue, reason, name, group.number, time_text(group.last.job.finished_at), group.last.job.id, group.last.job.error)
        for (queue, reason, name), group in sorted(groups.items())
    ]
    columns = ("queue", "reason", "task", "number", "last died", "last id", "last error")
    whole = ("queue", "last died", "last id")
    output.table("", columns, rows, right=("number",), fold=("last error",), whole=whole, spare=SPARE)


def _settle(action: str, choice: Choice, broker: Broker, output: Output) -> None:
    """Puts jobs back or deletes them. One that somebody else has just taken care of is left alone."""
    chosen: dict[str, list[str]] = {}
    for dead in choice.find(broker):
        chosen.setdefault(dead.job.queue, []).append(dead.job.id)
    for queue, ids in chosen.items():
        number = 0
        for first in range(0, len(ids), PAGE):
            page = ids[first : first + PAGE]
            if action == "requeue":
                revived: tuple[bool, ...] = broker.link.run(broker.scripts.revive(queue, page))
                number += sum(revived)
            else:
                gone = broker.link.run_all([broker.scripts.remove(queue, job_id, "dead") for job_id in page])
                number += sum(place == "dead" for place in gone)
        if output.json:
            output.line({"queue": queue, "action": action, "number": number})
        else:
            output.say(f"queue {queue}: {number} {'put back' if action == 'requeue' else 'deleted'}")
    if not chosen and not output.json:
        output.say("No dead letters fit.")
