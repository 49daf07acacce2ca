"""``ferryman ui``: serves the web page until a signal ends it."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import click

from ...schema.connection.address import Address, Kind
from ...schema.errors import UsageError
from ..options import address_argument, checksum_option
from ..status import Status
from .settings import LOOPBACK, Proxy, Role, Settings, is_address, is_loopback

PORT = 8710
LEAST_TOKEN = 16
"""Characters of a token: fewer could be guessed."""


def _listen(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, int]:
    """The host and port of ``[HOST:]PORT``."""
    host, _, port = value.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 2**16):
        raise click.BadParameter(f"{value!r} is not [HOST:]PORT", ctx=ctx, param=param)
    return host.strip("[]") or LOOPBACK, int(port)


def _token(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """The token that stands where ``env:VARIABLE`` or ``file:PATH`` says. A wrong one is never repeated: it may be the token."""
    if value is None:
        return None
    way, _, place = value.partition(":")
    if way == "env" and place:
        token = os.environ.get(place, "")
        where = f"the environment variable {place}"
    elif way == "file" and place:
        try:
            token = Path(place).read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is no text"
            raise click.BadParameter(f"the file {place} can't be read: {reason}", ctx=ctx, param=param) from None
        where = f"the file {place}"
    else:
        hint = "say where the token stands: env:VARIABLE or file:PATH; the token itself never stands on a command line"
        raise click.BadParameter(hint, ctx=ctx, param=param)
    token = token.strip()
    if len(token) < LEAST_TOKEN:
        raise click.BadParameter(
            f"{where} holds no token of at least {LEAST_TOKEN} characters; openssl rand -hex 16 makes one", ctx=ctx, param=param
        )
    return token


@click.command()
@address_argument()
@click.option(
    "--listen",
    metavar="[HOST:]PORT",
    default=str(PORT),
    show_default=True,
    callback=_listen,
    help=f"Where to listen. HOST is {LOOPBACK} if left out; others need a token or --proxy-header. Port 0: a free one.",
)
@click.option("--write", is_flag=True, help="Let operators act. Without it, nobody can change anything.")
@click.option("--reader-token", metavar="PLACE", callback=_token, help="env:VARIABLE or file:PATH: who has this token may look.")
@click.option("--operator-token", metavar="PLACE", callback=_token, help="The same: who has this token may act, with --write.")
@click.option("--proxy-header", metavar="NAME", help="The header in which a reverse proxy names its user, such as Remote-User.")
@click.option("--proxy-operator", "operators", metavar="USER", multiple=True, help="A user of the proxy who may act.")
@click.option(
    "--proxy-from", metavar="ADDRESS", multiple=True, help="Where the proxy asks from. Default: this machine. May be given again."
)
@click.option(
    "--public-host", metavar="NAME", multiple=True, help="A name by which browsers call this page, beside localhost and HOST."
)
@click.option("--audit-log", type=click.Path(dir_okay=False, path_type=Path), help="Add a line of JSON for each action here.")
@checksum_option
@click.pass_obj
def command(
    app: Any,
    url: Address,
    listen: tuple[str, int],
    write: bool,
    reader_token: str | None,
    operator_token: str | None,
    proxy_header: str | None,
    operators: tuple[str, ...],
    proxy_from: tuple[str, ...],
    public_host: tuple[str, ...],
    audit_log: Path | None,
) -> Status:
    """Serve a web page: queues, jobs, dead letters, consumers, findings, migrations; with --write, actions.

    It shows every keyspace of the database, and begins with that of the URL. Read-only, and for this machine only, unless told
    otherwise. Needs the extra ui: pip install 'ferryman[ui]'.

    \b
    Examples:
      ferryman ui ferryman://localhost:6379/0
      ferryman ui ferryman://localhost:6379/0 --write --audit-log actions.jsonl
      ferryman ui ferryman://localhost:6379/0 --listen 0.0.0.0:8710 --operator-token env:UI_TOKEN --public-host queues.example.org
    """
    tokens = {role: token for role, token in ((Role.READER, reader_token), (Role.OPERATOR, operator_token)) if token is not None}
    if len(set(tokens.values())) < len(tokens):
        raise UsageError("--reader-token and --operator-token are the same token: readers would be operators")
    proxy = _proxy(proxy_header, operators, proxy_from)
    host, port = listen
    if not is_loopback(host) and not tokens and proxy is None:
        raise UsageError(
            f"{host} can be reached from other machines: give --operator-token or --reader-token, or --proxy-header for a "
            f"reverse proxy that knows its users; or listen on {LOOPBACK}"
        )
    if write and url.kind is Kind.RDB:
        raise UsageError("a snapshot file can't be changed: leave --write out")
    if url.kind in (Kind.RDB, Kind.CLUSTER):
        raise UsageError(f"the page looks at one server; {url.kind}:// is none")
    names = frozenset(name.lower() for name in public_host)
    _serve(Settings(url, host, port, write, tokens, proxy, names, audit_log, app))
    return Status.FINE


def _proxy(header: str | None, operators: tuple[str, ...], addresses: tuple[str, ...]) -> Proxy | None:
    if header is None:
        if operators or addresses:
            raise UsageError("--proxy-operator and --proxy-from are for a reverse proxy: give --proxy-header, too")
        return None
    for each in addresses:
        if not is_address(each):
            raise UsageError(f"--proxy-from {each!r} is not an IP address: give the address from which the proxy connects")
    return Proxy(header.lower(), frozenset(operators), frozenset(addresses) or frozenset({LOOPBACK, "::1"}))


def _serve(settings: Settings) -> None:
    try:
        from .server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("jinja2", "markupsafe", "starlette", "uvicorn", "anyio"):
            raise
        raise UsageError(f"the web page needs {error.name}: pip install 'ferryman[ui]'") from None
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(found[4][:2], family=found[0])
    except OSError as error:
        raise UsageError(f"can't listen on {settings.host}:{settings.port}: {error.strerror or error}") from None
    with listener:
        serve(settings, listener)
