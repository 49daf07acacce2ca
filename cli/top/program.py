"""The command ``top``: looks, draws, takes keys; or prints tables where there is no terminal."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import click
from rich.console import Console
from rich.control import Control
from rich.text import Text

from ...operations.steering import open_steering
from ...operations.watch import Watch
from ...schema.connection.address import Address
from ...schema.errors import FerrymanError, ServerError
from ...schema.text import show
from ..duration import Duration
from ..options import address_argument, output_option
from ..output import PIPE_WIDTH, Output
from ..status import Status
from .keys import Keys, can_read_keys, open_keys
from .screen import Screen
from .table import json_of, plain, rows_of


@click.command()
@address_argument()
@click.option("--queue", "queues", multiple=True, help="Only this queue; may be given several times. Default: all that last.")
@click.option("--filter", "text", default="", metavar="TEXT", help="Only queues whose names contain this.")
@click.option(
    "--interval",
    "interval_ms",
    type=Duration(least_ms=100, bare_is_seconds=True),
    default="2s",
    show_default=True,
    help="The time between two looks, seconds unless it says otherwise.",
)
@click.option("--count", type=click.IntRange(min=1), help="Print so many tables and end, also on a terminal.")
@click.option("--write", is_flag=True, help="Let the key p pause and resume queues.")
@output_option
def command(
    url: Address, queues: tuple[str, ...], text: str, interval_ms: int, count: int | None, write: bool, output: Output
) -> Status:
    """Watch queues in a terminal.

    For each queue: jobs that wait, that consumers hold, that are dead or scheduled; how long the first has waited; jobs in and
    out a second; consumers. A dash is what the system does not tell. At most two commands a queue and look.

    Keys: q quits, / filters, s and r sort, space stops, arrows choose a queue, p pauses it with --write. Into a pipe or a file,
    or with TERM=dumb, it prints one table and ends.

    \b
    Examples:
      ferryman top ferryman://localhost:6379/0
      ferryman top 'ferryman://localhost:6379/0?family=kue' --filter mail --count 3 --interval 10s
    """
    watch, interval = Watch(url, queues, text), interval_ms / 1000
    try:
        if count is None and _is_interactive(output):
            _interactive(url, watch, interval, write=write)
        else:
            _print(watch, count or 1, interval, output)
    finally:
        watch.close()
    return Status.FINE


def _is_interactive(output: Output) -> bool:
    return (
        not output.json and output.people.is_terminal and os.environ.get("TERM", "dumb") not in ("dumb", "") and can_read_keys()
    )


def _print(watch: Watch, count: int, interval: float, output: Output) -> None:
    """Tables, one after the other; of the first no rates are known."""
    for number in range(count):
        if number:
            time.sleep(interval)
        look = watch.look()
        if output.json:
            for row in rows_of(look):
                output.line(json_of(row))
            continue
        width = output.people.width if output.people.is_terminal else PIPE_WIDTH
        for each in plain(look, width):
            click.echo(each)


def _interactive(url: Address, watch: Watch, interval: float, *, write: bool) -> None:
    steering = url.key_family.steering(url.prefix) if write else None
    screen = Screen(url.display(), can_pause=steering is not None and steering.can_pause, text=watch.text)
    console = Console(highlight=False, color_system=None)
    with open_keys() as keys, console.screen(hide_cursor=True) as whole:

        def draw() -> None:
            size = console.size
            lines = screen.lines(size.width, size.height)
            console.control(Control.home())
            whole.update(Text("\n".join(lines), no_wrap=True, overflow="crop"))

        _run(url, watch, screen, keys, draw, interval)


def _run(url: Address, watch: Watch, screen: Screen, keys: Keys, draw: Callable[[], None], interval: float) -> None:
    due = 0.0
    while True:
        if time.monotonic() >= due and not screen.is_stopped:
            _look(watch, screen)
            due = time.monotonic() + interval
        draw()
        key = keys.next(max(0.0, due - time.monotonic()) if not screen.is_stopped else 3600.0)
        wish = None if key is None else screen.key(key)
        if wish == "quit":
            return
        if wish == "look":
            due = 0.0
        elif wish is not None:
            _steer(url, screen, wish)
            due = 0.0


def _look(watch: Watch, screen: Screen) -> None:
    """New numbers; the last ones stay while the server is away."""
    watch.text = screen.text
    try:
        screen.look = watch.look()
    except ServerError as error:
        screen.trouble = str(error)
    else:
        screen.trouble = ""


def _steer(url: Address, screen: Screen, wish: str) -> None:
    queue = screen.chosen or ""
    try:
        with open_steering(url, by=os.environ.get("USER", "")) as steering:
            changed = steering.pause(queue) if wish == "pause" else steering.resume(queue)
    except FerrymanError as error:
        screen.says = str(error)
        return
    done = "is paused" if wish == "pause" else "goes on"
    screen.says = f"queue {show(queue, 60)} {done}" + ("" if changed else " already")
