"""``ferryman jobs``: lists the jobs of any keyspace as canonical jobs. Only reads.

A limited listing comes from indexes where the family has them (``operations/pages.py``); jobs by id from the keys that these lead
to (``operations/lookup.py``); a filter looks at a bounded number of jobs (``operations/search.py``). All else reads every job.
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
from ..operations.lookup import FoundJob, lookup, task_id_of
from ..operations.search import SearchCursor, scanned, search
from ..schema.connection.address import Address
from ..schema.connection.permission import is_forbidden
from ..schema.errors import ServerError, UsageError
from ..schema.job import JOB_FIELDS, Job, State
from ..schema.steering import JobFilter
from ..schema.text import payload_json, show, to_bytes
from .engines import engine_options
from .job_story import show_story, story_json
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
@click.option(
    "--id", "ids", multiple=True, metavar="ID", help="Only the job with this id, or of this Celery task, and all about it."
)
@click.option("--task", help="Only jobs whose task has this name, exactly.")
@click.option("--text", help="Only jobs whose payload, as it stands in Redis, contains this text.")
@click.option("--scan", is_flag=True, help="With --id, --task or --text: read every job, also those that stand in no index.")
@click.option("--limit", type=click.IntRange(min=0), help=f"At most so many jobs; 0: all. Default: {SHOWN} in a table, else all.")
@click.option("--newest", is_flag=True, help="From the other end: what runs last, or came last. With --queue and --state.")
@click.option(
    "--after", metavar="CURSOR", help="The page after that which has named this cursor. With --queue and --state, or a filter."
)
@engine_options
@checksum_option
@now_option
@output_option
def command(
    url: Address,
    queue: str | None,
    state: str | None,
    ids: tuple[str, ...],
    task: str | None,
    text: str | None,
    scan: bool,
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

    --id shows all about a job: its record, where it stands, logs, history and why it died. Ids lead to keys, at no cost.
    --task and --text look at some thousand jobs for a page, and name the cursor with which to go on, for there is no index of
    either. What could not be found so is found with --scan.

    \b
    Examples:
      ferryman jobs 'ferryman://localhost:6379/0?family=kue' --state waiting
      ferryman jobs ferryman://localhost:6379/0 --queue mail --format json | jq .payload
      ferryman jobs ferryman://localhost:6379/0 --queue mail --state failed --newest --limit 20
      ferryman jobs ferryman://localhost:6379/0 --id pub-17
      ferryman jobs ferryman://localhost:6379/0 --queue mail --state failed --task shop.send --text ann@example.com
    """
    most = limit if limit is not None else 0 if output.json else SHOWN
    moment_ms, only = moment(url, now_ms), State(state) if state else None
    if ids:
        if task is not None or text is not None or newest or after:
            raise UsageError("--id goes with --queue and --scan alone: leave --task, --text, --newest and --after out")
        return _show_by_id(engine, url, ids, queue, now_ms, moment_ms, scan, output)
    if task is not None or text is not None:
        chosen = JobFilter(task=task, text=None if text is None else to_bytes(text))
        return _show_matching(engine, url, chosen, queue, only, most, after, newest, moment_ms, scan, output)
    if scan:
        raise UsageError("--scan goes with --id, --task or --text; --limit 0 lists every job")
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


def _show_by_id(
    engine: Engine,
    url: Address,
    ids: tuple[str, ...],
    queue: str | None,
    now_ms: int | None,
    moment_ms: int,
    scan: bool,
    output: Output,
) -> Status:
    """Jobs with all about them. Exit status 1 if one is missing."""
    found = None if scan or not isinstance(engine, LocalEngine) else lookup(url, ids, queue and [queue], now_ms=now_ms)
    if found is None:
        jobs = [FoundJob(job, ()) for job in engine.jobs(url, moment_ms, queue) if job.id in ids or task_id_of(job) in ids]
        there = {name for each in jobs for name in (each.job.id, task_id_of(each.job))}
        missing, must_scan = [each for each in ids if each not in there], False
    else:
        jobs, missing, must_scan = list(found.jobs), list(found.missing), found.must_scan
    for each in jobs:
        if output.json:
            output.line(story_json(each))
        else:
            show_story(output, each, time_text)
    for job_id in missing:
        hint = ": its keys don't follow from this id, so only --scan, which reads every job, tells whether it is there"
        output.note(f"no job or task {job_id!r} was found{hint if must_scan else ''}")
    return Status.FINDINGS if missing else Status.FINE


def _show_matching(
    engine: Engine,
    url: Address,
    chosen: JobFilter,
    queue: str | None,
    state: State | None,
    most: int,
    after: str | None,
    newest: bool,
    now_ms: int,
    scan: bool,
    output: Output,
) -> Status:
    """Jobs that a filter fits, a page of them if indexes tell."""
    say = output.note if output.json else output.say
    cursor = SearchCursor.parse(after) if after else None
    found = None
    if not scan and isinstance(engine, LocalEngine):
        found = search(url, chosen, most or SHOWN, queue=queue, state=state, after=cursor, newest=newest, now_ms=now_ms)
    if found is None:
        if newest or after:
            raise UsageError(
                f"{url.family} has no index of such jobs, or --scan was given; leave --newest and --after out to read every job"
            )
        _show(iter(scanned(engine.jobs(url, now_ms, queue, state), chosen, most, now_ms)), output)
        return Status.FINE
    _show(iter(found.jobs), output)
    if found.next is not None:
        say(f"… looked at {found.looked_at} jobs; go on with --after '{found.next}'")
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
