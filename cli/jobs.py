"""``ferryman jobs``: lists the jobs of any keyspace as canonical jobs. Only reads.

A limited listing comes from indexes where the family has them (``operations/pages.py``); any other reads every job.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import click

from ..migrations.engine import Engine
from ..migrations.local import LocalEngine
from ..operations import pages
from ..schema.connection.address import Address
from ..schema.connection.permission import is_forbidden
from ..schema.errors import ServerError, UsageError
from ..schema.job import JOB_FIELDS, Job, State
from ..schema.text import payload_json, show
from .engines import engine_options
from .options import address_argument, checksum_option, moment, now_option, output_option
from .output import Output
from .status import Status

SHOWN = 100
"""Rows of a table, unless --limit says otherwise."""

COLUMNS = ("id", "queue", "state", "priority", "attempts", "created", "due", "payload")
SPARE = ("attempts", "priority", "created", "due", "payload")
"""What a narrow terminal does without."""


@click.command()
@address_argument()
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--state", type=click.Choice([str(each) for each in State]), help="Only jobs in this state.")
@click.option("--limit", type=click.IntRange(min=0), help=f"At most so many jobs; 0: all. Default: {SHOWN} in a table, else all.")
@click.option("--newest", is_flag=True, help="From the other end: what runs last, or came last. With --queue and --state.")
@click.option("--after", metavar="CURSOR", help="The page after that which has named this cursor. With --queue and --state.")
@engine_options
@checksum_option
@now_option
@output_option
def command(
    url: Address,
    queue: str | None,
    state: str | None,
    limit: int | None,
    newest: bool,
    after: str | None,
    engine: Engine,
    now_ms: int | None,
    output: Output,
) -> Status:
    """List jobs, in the order in which they will run.

    Jobs come by queue and state; waiting jobs in the order in which workers will get them, others by id. With a limit, which a
    table always has, they come from indexes where the system keeps such, in the order of these, at once, however many jobs there
    are; jobs that stand in none are listed with --limit 0.

    \b
    Examples:
      ferryman jobs 'ferryman://localhost:6379/0?family=kue' --state waiting
      ferryman jobs ferryman://localhost:6379/0 --queue mail --format json | jq .payload
      ferryman jobs ferryman://localhost:6379/0 --queue mail --state failed --newest --limit 20
    """
    most = limit if limit is not None else 0 if output.json else SHOWN
    moment_ms, only = moment(url, now_ms), State(state) if state else None
    if newest or after:
        if not (queue is not None and only and most):
            raise UsageError("--newest and --after are for a page: give --queue, --state and a --limit above 0")
        return _show_page(url, queue, only, most, after, newest, moment_ms, output)
    head = None if now_ms is not None else _head(engine, url, most, queue, only, moment_ms)
    if head is not None:
        _show(iter(head.jobs), output)
        more = head.more
    else:
        found = engine.jobs(url, moment_ms, queue, only)
        _show(islice(found, most or None), output)
        more = 0 if output.json else sum(1 for _ in found)
    if more and not output.json:
        output.say(f"… and {more} more jobs; --limit 0 shows all.")
    return Status.FINE


def _head(engine: Engine, url: Address, most: int, queue: str | None, state: State | None, now_ms: int) -> pages.Head | None:
    """The first jobs, if indexes tell them and the user may ask them."""
    if not most or not isinstance(engine, LocalEngine):
        return None
    try:
        return pages.head(url, most, queue, state, now_ms=now_ms)
    except ServerError as error:
        if is_forbidden(error):
            return None
        raise


def _show_page(
    url: Address, queue: str, state: State, most: int, after: str | None, newest: bool, now_ms: int, output: Output
) -> Status:
    start = pages.Cursor.parse(after) if after else pages.Cursor()
    found = pages.page(url, queue, state, most, start, newest=newest, now_ms=now_ms)
    if found is None:
        raise UsageError(
            f"{url.family} has no index of {state} jobs of one queue; leave --newest and --after out to read all jobs"
        )
    _show(iter(found.jobs), output)
    if found.next is not None:
        (output.note if output.json else output.say)(f"… more with --after {found.next}")
    return Status.FINE


def _show(jobs: Iterator[Job], output: Output) -> None:
    if output.json:
        for job in jobs:
            output.line(job_json(job))
    else:
        whole = ("id", "state", "created", "due")
        rows = map(_row, jobs)
        output.table("", COLUMNS, rows, right=("priority", "attempts"), fold=("payload",), whole=whole, spare=SPARE)


def job_json(job: Job) -> dict[str, Any]:
    """The canonical fields for JSON: payload and result as what they mean, everything else as it is."""
    fields = {name: getattr(job, name) for name in JOB_FIELDS}
    return fields | {"payload": payload_json(job.payload), "result": payload_json(job.result)}


def _row(job: Job) -> tuple[object, ...]:
    payload = show(job.payload, 60) if job.payload is not None else None
    return (job.id, job.queue, job.state, job.priority, job.attempts, time_text(job.created_at), time_text(job.due_at), payload)


def time_text(ms: int | None) -> str | None:
    """A time in UTC to the second; a number that is no date stays a number."""
    if ms is None:
        return None
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):
        return str(ms)
