"""``ferryman cancel``: removes tasks that nobody has begun from their queues."""

from __future__ import annotations

from typing import Any

import click

from ..operations.broker import open_broker
from ..schema.connection.address import Address
from ..schema.native.scripts.results import Task
from ..transport.celery.revoked_tasks import report_revoked
from ..transport.publish.revocation import removals
from .options import address_argument, output_option
from .output import Output
from .status import Status


@click.command()
@address_argument()
@click.argument("task_ids", nargs=-1, required=True, metavar="TASK_ID...")
@click.option("--queue", "queues", multiple=True, help="Look only into this queue; may be given several times. Default: all.")
@output_option
@click.pass_obj
def command(app: Any, url: Address, task_ids: tuple[str, ...], queues: tuple[str, ...], output: Output) -> Status:
    """Remove tasks that nobody has begun from their queues.

    Finds tasks that wait or are scheduled by their Celery task ids. What a worker has taken already goes on. Result backends and
    monitors are told only where the app is known: by celery -A app ferryman cancel, and by ferryman.transport.revoke.

    \b
    Example:
      ferryman cancel ferryman://localhost:6379/0 6a1c7f1e-8f6b-4c3e-9d0a-2f9f3f1c8f11
    """
    removed: list[Task] = []
    try:
        with open_broker(url) as broker:
            for queue, task in removals(broker.link, broker.scripts, set(task_ids), broker.queues(queues)):
                removed.append(task)
                if output.json:
                    output.line({"task_id": task.task, "queue": queue, "job_id": task.id})
                else:
                    output.say(f"removed {task.task} from queue {queue}")
    finally:
        if app is not None and removed:
            with app.connection_for_write() as connection:
                report_revoked(app, removed, connection.transport)
    for task_id in sorted(set(task_ids).difference(task.task for task in removed)):
        output.note(f"not found, or begun already: {task_id}")
    return Status.FINE
