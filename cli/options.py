"""Options: the arguments and options that several commands share, so that they read and mean the same everywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from ..migrations.detect import resolve
from ..migrations.source import open_source
from ..schema.connection.address import ANY_FAMILY, Address, Kind
from ..schema.errors import UsageError
from .output import Format, Output

F = TypeVar("F", bound=Callable[..., Any])


UNCHECKED = "ferryman.unchecked"
"""Where a command notes that the checksum of files is not to be compared."""


def _note_unchecked(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    ctx.meta[UNCHECKED] = value


# Known before any URL is looked at, and perhaps read.
checksum_option = click.option(
    "--no-checksum",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_note_unchecked,
    help="Read a snapshot file without comparing its checksum, damaged or not.",
)


def address_argument(name: str = "url", *, is_read: bool = True) -> Callable[[F], F]:
    """A ``ferryman://`` URL as an argument; the command gets an Address.

    ``is_read``: the command reads what stands there, so that ``family=auto`` has a meaning: the command gets the address of
    the keyspace that was found.
    """

    def convert(ctx: click.Context, param: click.Parameter, value: str) -> Address:
        try:
            address = Address.parse(value)
            if ctx.meta.get(UNCHECKED):
                address = _unchecked(address, name)
            if address.family == ANY_FAMILY and not is_read:
                raise UsageError("family=auto finds a keyspace to read; name the family of this one")
        except UsageError as error:
            # The URL itself is not repeated: its password may stand anywhere in it.
            raise click.BadParameter(str(error), ctx=ctx, param=param) from None
        return resolve(address)

    return click.argument(name, callback=convert, metavar=name.upper())


def _unchecked(address: Address, name: str) -> Address:
    if address.kind is Kind.RDB:
        return address.unchecked()
    if name == "target":
        return address
    raise UsageError(f"--no-checksum is for snapshot files ({Kind.RDB}://); this is a server")


def output_option(command: F) -> F:
    """``--format``; the command gets an Output as ``output``."""

    def convert(_ctx: click.Context, _param: click.Parameter, value: str) -> Output:
        return Output(Format(value))

    return click.option(
        "--format",
        "output",
        type=click.Choice([str(each) for each in Format]),
        default=str(Format.TABLE),
        show_default=True,
        callback=convert,
        help="table: for people. json: one JSON object a line on stdout, and nothing else there.",
    )(command)


now_option = click.option(
    "--now",
    "now_ms",
    type=click.IntRange(min=0),
    metavar="MS",
    help="The moment to compare times with, Unix ms. Default: the server's clock, or a snapshot's time.",
)


def moment(address: Address, now_ms: int | None) -> int:
    """The moment that rules compare with. The server's or the snapshot's own, if the user gave none."""
    if now_ms is not None:
        return now_ms
    with open_source(address) as source:
        return source.clock_ms()
