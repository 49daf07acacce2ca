"""``ferryman jobs``: lists the jobs of any keyspace as canonical jobs. Only reads."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from typing import Any

import click

from ..migrations.engine import Engine
from ..schema.connection.address import Address
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
@engine_options
@checksum_option
@now_option
@output_option
def command(
    url: Address,
    queue: str | None,
    state: str | None,
    limit: int | None,
    engine: Engine,
    now_ms: int | None,
    output: Output,
) -> Status:
    """List jobs, in the order in which they will run.

    Jobs come by queue and state; waiting jobs in the order in which workers will get them.

    \b
    Examples:
      ferryman jobs 'ferryman://localhost:6379/0?family=kue' --state waiting
      ferryman jobs ferryman://localhost:6379/0 --queue mail --format json | jq .payload
    """
    found = engine.jobs(url, moment(url, now_ms), queue, State(state) if state else None)
    most = limit if limit is not None else 0 if output.json else SHOWN
    if output.json:
        for job in islice(found, most or None):
            output.line(job_json(job))
        return Status.FINE
    rows = (_row(job) for job in islice(found, most or None))
    whole = ("id", "state", "created", "due")
    output.table("", COLUMNS, rows, right=("priority", "attempts"), fold=("payload",), whole=whole, spare=SPARE)
    more = sum(1 for _ in found)
    if more:
        output.say(f"… and {more} more jobs; --limit 0 shows all.")
    return Status.FINE


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
