"""The page behind a real nginx, with the command and the configuration that docs/ui.md shows."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ..cli.test_ui import serving
from ..support.nginx import DOCS, NGINX, nginx, server_block
from ..support.servers import Server

pytestmark = pytest.mark.skipif(not NGINX.exists(), reason="needs nginx: apt-get install nginx-light")

PASSWORDS = {"ann": "ann's password", "bob": "bob's password"}
HOST = "queues.example.org"


@pytest.fixture
def behind_nginx(server: Server, tmp_path: Path) -> Iterator[str]:
    """The URL of nginx. ann is an operator."""
    (command,) = re.findall(r"^    ferryman ui (\S+ .*--proxy-header .*)$", (DOCS / "ui.md").read_text("utf-8"), re.MULTILINE)
    _, *options = shlex.split(command)
    with serving(server.url(), *options, "--listen", "0") as (_, page):
        block = server_block("ui.md").replace("http://127.0.0.1:8710", page.rstrip("/"))
        with nginx(tmp_path, block, PASSWORDS) as url:
            yield url


def browser(url: str, user: str) -> httpx.Client:
    """It sends its password with each request, and keeps cookies."""
    return httpx.Client(base_url=url, auth=(user, PASSWORDS[user]), headers={"Host": HOST}, timeout=60)


def form_token(client: httpx.Client) -> str:
    return client.get("/enqueue?queue=mail").text.split('name="form_token" value="')[1].split('"')[0]


@pytest.mark.parametrize(("user", "role"), [("ann", "operator"), ("bob", "reader")])
def test_a_user_with_a_password_has_the_role_that_the_command_gives(behind_nginx: str, user: str, role: str) -> None:
    with browser(behind_nginx, user) as client:
        response = client.get("/queues")
    assert response.status_code == 200
    assert f">{role}<" in response.text


def test_an_operator_acts_as_the_user_that_nginx_names(behind_nginx: str) -> None:
    with browser(behind_nginx, "ann") as client:
        sent = {"form_token": form_token(client), "task": "proj.send"}
        response = client.post("/enqueue?queue=mail", data=sent, headers={"Origin": f"http://{HOST}"})
        assert response.status_code == 303, response.text
        log = client.get("/log").text
    assert ">ann<" in log
    assert "proj.send" in log


def test_a_form_of_another_site_is_refused_though_the_browser_sends_the_password(behind_nginx: str) -> None:
    with browser(behind_nginx, "ann") as client:
        sent = {"form_token": form_token(client), "action": "pause"}
        assert client.post("/queue/act?queue=mail", data=sent, headers={"Origin": "http://evil.example"}).status_code == 403
        assert client.post("/queue/act?queue=mail", data={"action": "pause"}).status_code == 403


def test_no_visitor_names_himself(behind_nginx: str) -> None:
    claim = {"Host": HOST, "Remote-User": "ann"}
    assert httpx.get(f"{behind_nginx}/queues", headers=claim, timeout=60).status_code == 401
    assert httpx.get(f"{behind_nginx}/queues", headers=claim, auth=("ann", "wrong"), timeout=60).status_code == 401
    with browser(behind_nginx, "bob") as client:
        assert ">reader<" in client.get("/queues", headers=claim).text


def test_live_numbers_pass_through_at_once(behind_nginx: str) -> None:
    with browser(behind_nginx, "ann") as client, client.stream("GET", "/live/queues") as response:
        assert response.status_code == 200
        for line in response.iter_lines():
            if line == "event: numbers":
                return
    raise AssertionError("no numbers came")
