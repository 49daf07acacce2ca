"""``ferryman cancel``: removes tasks that nobody has begun from their queues."""

from __future__ import annotations

import click

from ..schema.address import Address
from ..transport.revocation import removals
from .broker import open_broker
from .options import address_argument, output_option
from .output import Output
from .status import Status


@click.command()
@address_argument()
@click.argument("task_ids", nargs=-1, required=True, metavar="TASK_ID...")
@click.option("--queue", "queues", multiple=True, help="Look only into this queue; may be given several times. Default: all.")
@output_option
def command(url: Address, task_ids: tuple[str, ...], queues: tuple[str, ...], output: Output) -> Status:
    """Remove tasks that nobody has begun from their queues.

    Finds tasks that wait or are scheduled by their Celery task ids. What a worker has taken already goes on; result backends are
    not told (ferryman.transport.revoke(app, task_id) does that too).

    \b
    Example:
      ferryman cancel ferryman://localhost:6379/0 6a1c7f1e-8f6b-4c3e-9d0a-2f9f3f1c8f11
    """
    left = set(task_ids)
    with open_broker(url) as broker:
        for queue, task in removals(broker.wire, broker.live, set(task_ids), broker.queues(queues)):
            left.discard(task.task)
            if output.json:
                output.line({"task_id": task.task, "queue": queue, "job_id": task.id})
            else:
                output.say(f"removed {task.task} from queue {queue}")
    for task_id in sorted(left):
        output.note(f"not found, or begun already: {task_id}")
    return Status.FINE
