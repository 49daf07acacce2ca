"""``celery -A app ferryman …``: the commands about queues, for the broker that the app is configured with.

Celery loads this in every run of its command line, so it imports nothing but click until one of them is called.
"""

from __future__ import annotations

import sys

import click

COMMANDS = ("queues", "backlog", "metrics", "dead", "cancel", "pause", "resume", "drain", "steer", "ui")


@click.command(
    add_help_option=False,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    short_help="Queues, jobs, dead letters, metrics: see and steer them, of a ferryman:// broker.",
)
@click.argument("name", type=click.Choice(COMMANDS))
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def ferryman(context: click.Context, name: str, arguments: tuple[str, ...]) -> None:
    """What ``ferryman NAME URL …`` does, without the URL. Who cancels by it also tells the result backend."""
    from ..transport.transport import Transport
    from .main import main

    with context.obj.app.connection_for_write() as connection:
        if not isinstance(connection.transport, Transport):
            raise click.UsageError(f"the broker of this app is no ferryman:// one: {connection.as_uri()}")
        url = connection.transport.session.settings.address.of_keyspace().url()
    sys.exit(main.main([name, url, *arguments], prog_name="ferryman", standalone_mode=False, obj=context.obj.app) or 0)
