"""Passwords that a URL only names: they open the server, follow a change, and what is missing is named with its machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
import redis
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.connect import connect, open_client
from ferryman.schema.errors import AddressError, ServerError, UsageError

from ..support.messages import round_trip
from ..support.servers import Server


@pytest.fixture
def guarded(server: Server, client: redis.Redis) -> Iterator[Server]:
    """A server that lets in the user ``reader`` alone beside the test itself, with the password ``first``."""
    client.execute_command("ACL", "SETUSER", "reader", "reset", "on", "~*", "&*", "+@all", ">first")
    yield server
    client.execute_command("ACL", "DELUSER", "reader")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("first\n")
    return path


def url_of(server: Server, query: str) -> str:
    return f"ferryman://reader@{server.host}:{server.port}/0?{query}"


def test_a_password_in_a_variable_opens_the_server(guarded: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_PASSWORD", "first")
    with open_client(Address.parse(url_of(guarded, "password_env=QUEUE_PASSWORD"))) as client:
        assert client.execute_command("ACL", "WHOAMI") == b"reader"


def test_a_password_in_a_file_serves_the_broker_too(guarded: Server, file: Path) -> None:
    round_trip(url_of(guarded, f"password_file={file}"))


def test_a_changed_file_is_followed_by_the_next_connection(guarded: Server, client: redis.Redis, file: Path) -> None:
    with connect(Address.parse(url_of(guarded, f"password_file={file}"))) as reader:
        reader.ping()
        client.execute_command("ACL", "SETUSER", "reader", "resetpass", ">second")
        file.write_text("second")
        client.client_kill_filter(_type="normal", skipme=True)
        assert reader.ping()


def test_a_wrong_password_is_refused_and_not_shown(guarded: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("QUEUE_PASSWORD", "swordfish")
    address = Address.parse(url_of(guarded, "password_env=QUEUE_PASSWORD"))
    with pytest.raises(ServerError, match=r"refuses the credentials .*\?password_env=") as caught, open_client(address) as client:
        client.ping()
    assert "swordfish" not in f"{caught.value}{address}{address!r}"


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("password_env=QUEUE_PASSWORD", "the environment variable 'QUEUE_PASSWORD' (password_env) is not set on "),
        (
            "password_file=/nowhere/at/all",
            "the file '/nowhere/at/all' (password_file) can't be read (No such file or directory) on ",
        ),
        ("password_file=/dev/null", "the file '/dev/null' (password_file) is empty on "),
    ],
)
def test_what_is_missing_is_named_with_the_machine(query: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        connect(Address.parse(f"ferryman://localhost/0?{query}"))
    assert str(caught.value).endswith(reason + socket.gethostname())


@pytest.mark.parametrize(
    "url",
    [
        "ferryman://:sesame@localhost/0?password_env=QUEUE_PASSWORD",
        "ferryman://localhost/0?password_env=QUEUE_PASSWORD&password_file=/run/secrets/queue",
    ],
)
def test_a_password_is_given_once(url: str) -> None:
    with pytest.raises(AddressError, match="give the password once") as caught:
        Address.parse(url)
    assert "sesame" not in str(caught.value)


def test_an_address_names_the_place_and_comes_back_from_its_url() -> None:
    url = "ferryman://reader@localhost:6379/0?password_file=%2Frun%2Fsecrets%2Fqueue"
    assert Address.parse(url).url() == Address.parse(url).display() == url
