"""``ferryman detect``: tells which systems' keyspaces stand in a database. Only reads, and only so much."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
from attrs import asdict, evolve

from ..migrations.detect import MOST_KEYS, MOST_SECONDS, Detection, detect, located
from ..schema.connection.address import DEFAULT_FAMILY, Address
from ..schema.text import plural
from .options import address_argument, checksum_option, output_option
from .output import Output
from .status import Status

SHOWN_QUEUES = 5


@click.command()
@address_argument(is_read=False)
@click.option("--most-keys", type=click.IntRange(min=1), default=MOST_KEYS, show_default=True, help="Look at so many key names.")
@click.option("--seconds", type=click.FloatRange(min=0.1), default=MOST_SECONDS, show_default=True, help="Stop after so long.")
@checksum_option
@output_option
def command(url: Address, most_keys: int, seconds: float, output: Output) -> Status:
    """See which systems' jobs live in a database, and under which prefixes.

    Looks at the names of a bounded number of keys, and into some of each kind: a family or a prefix in the URL has no meaning
    here. Numbers of large databases are estimates. "sure" and "likely" keyspaces are what family=auto takes in the URLs
    of other commands. Exit status 1 when none stands there.

    With --format json: one object a keyspace (family, prefix, version, confidence, explained, keys, odd_keys, jobs,
    queues, exact, url), then a summary (database_keys, scanned, read, stopped_early, strangers, examples, journal,
    hidden).

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
    for each in found.keyspaces:
        about = "" if each.exact else "about "
        verdict = f"{each.confidence}, {each.explained:.0%} of its keys explained"
        jobs, queues, keys = plural(each.jobs, "job"), plural(len(each.queues), "queue"), plural(each.keys, "key")
        numbers = f"{about}{each.jobs:,} {jobs} in {len(each.queues)} {queues}, {about}{each.keys:,} {keys}"
        lines = [located(url, each), f"{numbers}: {_some(each.queues)}" if each.queues else numbers]
        output.paragraph((each.family, each.version or "", verdict), "info" if each.fits else "warning", lines)
    if not found.keyspaces:
        place = evolve(url, family=DEFAULT_FAMILY, prefix=DEFAULT_FAMILY).display()
        output.say(f"No system that ferryman knows in {place}.", "yellow")
    looked = f"{found.scanned:,} of {found.database_keys:,} keys looked at, {found.read:,} of them read"
    output.say(looked + ("; stopped early, so the numbers speak of these only." if found.stopped_early else "."))
    if found.journal:
        keeps = "the journal of migrations to this database, which keeps a second run from doing them again"
        output.say(f"Keys that are ferryman's own: {found.journal:,}, {keeps}.")
    if found.hidden:
        output.say(f"Keys that this user may not look at: {found.hidden:,}.", "yellow")
    if found.strangers:
        output.say(
            f"Keys that belong to none of them, and are never touched: {found.strangers:,}, such as {', '.join(found.examples)}."
        )


def _some(queues: Sequence[str]) -> str:
    more = len(queues) - SHOWN_QUEUES
    return ", ".join(queues[:SHOWN_QUEUES]) + (f" and {more} more" if more > 0 else "")
