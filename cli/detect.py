"""``ferryman detect``: tells which systems' keyspaces stand in a database. Only reads, and only so much."""

from __future__ import annotations

from typing import Any

import click
from attrs import asdict, evolve

from ..migrations.detect import MOST_KEYS, MOST_SECONDS, Detected, Detection, detect, located
from ..schema.address import DEFAULT_FAMILY, Address
from .options import address_argument, output_option
from .output import Output
from .status import Status

SHOWN_QUEUES = 5

COLUMNS = ("system", "prefix", "version", "is it?", "explained", "keys", "jobs", "queues", "URL")


@click.command()
@address_argument(is_read=False)
@click.option("--most-keys", type=click.IntRange(min=1), default=MOST_KEYS, show_default=True, help="Look at so many key names.")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=MOST_SECONDS, show_default=True, help="Stop after so long.")
@output_option
def command(url: Address, most_keys: int, seconds: float, output: Output) -> Status:
    """See which systems' jobs live in a database, and under which prefixes.

    Looks at the names of a bounded number of keys, and into some of each kind: a family or a prefix in the URL has no meaning
    here. Numbers of large databases are estimates. "sure" and "likely" keyspaces are what family=auto takes in the URLs
    of other commands. Exit status 1 when none stands there.

    With --format json: one object a keyspace (family, prefix, version, confidence, explained, keys, odd_keys, jobs,
    queues, exact, url), then a summary (database_keys, scanned, read, stopped_early, strangers, examples).

    \b
    Example:
      ferryman detect ferryman://localhost:6379/0
    """
    found = detect(url, most_keys, seconds)
    if output.json:
        for keyspace in found.keyspaces:
            output.line({**asdict(keyspace), "url": located(url, keyspace)})
        output.line(_summary(found))
    else:
        show(output, url, found)
    return Status.FINE if found.fitting else Status.FINDINGS


def _summary(found: Detection) -> dict[str, Any]:
    return {name: value for name, value in asdict(found, recurse=False).items() if name != "keyspaces"}


def show(output: Output, url: Address, found: Detection) -> None:
    """The result for people."""
    if found.keyspaces:
        rows = [_row(url, each) for each in found.keyspaces]
        output.table("", COLUMNS, rows, right=("explained", "keys", "jobs"), fold=("URL",))
    looked = f"{found.scanned:,} of {found.database_keys:,} keys looked at, {found.read:,} of them read"
    output.say(looked + ("; stopped early, so the numbers speak of these only." if found.stopped_early else "."))
    if not found.keyspaces:
        place = evolve(url, family=DEFAULT_FAMILY, prefix=DEFAULT_FAMILY).display()
        output.say(f"No system that ferryman knows in {place}.", "yellow")
    if found.strangers:
        output.say(f"{found.strangers:,} keys belong to none of them, such as {', '.join(found.examples)}: never touched.")


def _row(url: Address, each: Detected) -> tuple[object, ...]:
    about = "" if each.exact else "about "
    more = len(each.queues) - SHOWN_QUEUES
    queues = ", ".join(each.queues[:SHOWN_QUEUES]) + (f" and {more} more" if more > 0 else "")
    return (
        each.family,
        each.prefix,
        each.version,
        each.confidence,
        f"{each.explained:.0%}",
        f"{about}{each.keys:,}",
        f"{about}{each.jobs:,}",
        queues,
        located(url, each),
    )
