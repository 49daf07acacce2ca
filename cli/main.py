"""The ``ferryman`` command. Each command is a module of this folder that is imported only when it runs.

``ferryman jobs`` must start fast on a machine without Java, Spark or Celery: nothing here imports them.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping
from importlib import import_module

import click

COMMANDS: Mapping[str, str] = {
    "demo": "Show everything at once, on a server of its own.",
    "detect": "See which systems' jobs live in a database, and under which prefixes.",
    "audit": "Check every job of a keyspace against the rules of its family.",
    "migrate": "Carry all jobs of one keyspace to another.",
    "verify": "Compare a migrated keyspace with its source, job by job.",
    "jobs": "List jobs, in the order in which they will run.",
    "queues": "List queues with their numbers.",
    "backlog": "Print how many messages want a worker or have one, for autoscalers.",
    "history": "Show a queue's rates, depths, waits and run times over time.",
    "metrics": "Show the numbers of queues as Prometheus metrics, once or by HTTP.",
    "top": "Watch queues in a terminal: what waits, runs and is dead, how old, how fast.",
    "ui": "Serve a web page with queues, jobs, dead letters, consumers and findings; with --write, actions.",
    "pause": "Pause queues: nothing is taken from them until they are resumed.",
    "resume": "Resume queues that were paused.",
    "drain": "Delete what waits in queues or is scheduled there.",
    "steer": "Promote, reprioritise, edit, move, requeue, cancel or delete jobs, by id or all that match.",
    "dead": "List dead letters, put them back to their queues, or delete them.",
    "cancel": "Remove tasks that nobody has begun from their queues.",
    "server": "Run a server for development: the embedded Valkey, in the foreground.",
    "generate": "Write a realistic keyspace of any system, sound or damaged, for tests and demos.",
}
"""Command -> its one line in ``ferryman --help``. The module of the same name has it as ``command``."""
GC_THRESHOLD = 50_000
"""New values after which Python looks for cycles. A command makes hundreds of thousands when it loads its modules, nearly all of
them for good: with Python's own threshold it would look through them again and again, for a fifth of its start."""

EPILOG = """\b
Exit status: 0 fine, 1 findings or differences, 2 wrong usage, 3 a server or a file failed.
URLs: ferryman://[user:pass@]host[:port]/db[?family=kue&prefix=q]; family=auto: the one that is there
Examples:
  ferryman audit   'ferryman://localhost:6379/0?family=kue'
  ferryman migrate 'ferryman://localhost:6379/0?family=kue' ferryman://localhost:6379/1
  ferryman verify  'ferryman://localhost:6379/0?family=kue' ferryman://localhost:6379/1
"""


class LazyGroup(click.Group):
    """A group whose commands are modules, and whose errors are one line and an exit status."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f".{cmd_name}", __package__).command
        command.name = cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def invoke(self, ctx: click.Context) -> None:
        gc.set_threshold(GC_THRESHOLD)
        from .status import guarded  # with what errors are made of, for which --help need not wait

        ctx.exit(guarded(lambda: super(LazyGroup, self).invoke(ctx)))


@click.group(
    cls=LazyGroup,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="ferryman", message="ferryman %(version)s")
def main() -> None:
    """Carry the jobs of Redis queues: audit them, migrate them, list them. Nothing is lost on the way."""
