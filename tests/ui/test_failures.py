"""A server that goes away, is read-only, or gives few rights: a page that says so, never a traceback, and that comes back."""

from __future__ import annotations

import html
import json
import re
import threading
from pathlib import Path

import httpx
import pytest
import redis
from ferryman.cli.ui.background import Background
from ferryman.schema.errors import UsageError
from ferryman.schema.family import get_family
from ferryman.schema.job import Job, State
from ferryman.testing.keyspaces import store

from ..conftest import SERVERS
from ..support.servers import Server, wait_until_answering
from ..support.webpage import WebPage, web_page

NOW = 1_700_000_000_000
PAGES = ("/", "/queues", "/queue?queue=mail", "/jobs?queue=mail&state=waiting", "/job?queue=mail&id=i", "/consumers")
JOB = Job("i", "mail", "send", State.WAITING, priority=0, payload=b"[]", created_at=NOW)


def _stored(client: redis.Redis) -> None:
    store(client, get_family("ferryman"), "ferryman", [JOB], NOW)


def test_a_server_that_goes_away_is_a_page_and_comes_back(tmp_path: Path) -> None:
    with SERVERS[0].start(tmp_path) as server, web_page(server.url(socket_timeout=2), may_write=True) as page:
        _stored(server.client())
        for path in PAGES:
            assert page.http.get(path).status_code == 200
        server.client().shutdown(nosave=True)
        for path in PAGES:
            response = page.http.get(path)
            assert response.status_code == 503, path
            assert "is the server running?" in response.text
            assert 'http-equiv="refresh"' in response.text
            assert "Traceback" not in response.text
        response = page.send("/queue/act", {"action": "pause"}, {"queue": "mail"})
        assert response.status_code == 503
        with SERVERS[0].start(tmp_path, port=server.port) as again:
            wait_until_answering(again)
            _stored(again.client())
            for path in PAGES:
                assert page.http.get(path).status_code == 200, path


def test_a_replica_refuses_actions_in_plain_words(page: WebPage, client: redis.Redis) -> None:
    _stored(client)
    client.replicaof("127.0.0.1", 1)
    try:
        for path in PAGES:
            assert page.http.get(path).status_code == 200
        for path, sent in (
            ("/queue/act", {"action": "pause"}),
            ("/job/act", {"action": "delete"}),
            ("/enqueue", {"task": "send"}),
        ):
            response = page.send(path, sent, {"queue": "mail", "id": "i"})
            assert response.status_code == 503, (path, response.text)
            assert "read-only" in response.text
            assert "nothing was changed" in response.text
    finally:
        client.replicaof("NO", "ONE")
    assert page.send("/queue/act", {"action": "pause"}, {"queue": "mail"}).status_code == 303


@pytest.mark.parametrize("rights", ["+@all -@dangerous -script -eval -evalsha", "+ping +hello +auth"])
def test_a_user_with_few_rights_learns_which_one_is_missing(server: Server, client: redis.Redis, rights: str) -> None:
    _stored(client)
    client.execute_command("ACL", "SETUSER", "few", "on", ">secret", "~*", "&*", *rights.split())
    try:
        with web_page(server.url().replace("://", "://few:secret@"), may_write=True) as page:
            for path in PAGES:
                response = page.http.get(path)
                assert response.status_code in (200, 403), (path, response.text)
                assert "secret" not in response.text
                if response.status_code == 403:
                    assert "may not call" in response.text
            assert "may not call" in page.http.get("/queues").text
    finally:
        client.execute_command("ACL", "DELUSER", "few")


def test_live_numbers_say_when_the_server_is_away_and_come_back(tmp_path: Path) -> None:
    def events(page: WebPage, number: int) -> list[str]:
        found = []
        with httpx.stream("GET", page.url + "live/queues", timeout=60) as stream:
            for line in stream.iter_lines():
                if line.startswith("event: "):
                    found.append(line)
                    if len(found) == number:
                        return found
        raise AssertionError(found)

    with SERVERS[0].start(tmp_path) as server, web_page(server.url(socket_timeout=2)) as page:
        assert events(page, 1) == ["event: numbers"]
        server.client().shutdown(nosave=True)
        assert "event: failure" in events(page, 2)
        with SERVERS[0].start(tmp_path, port=server.port):
            assert "event: numbers" in events(page, 2)


def test_live_numbers_are_those_of_the_page(page: WebPage, client: redis.Redis) -> None:
    _stored(client)
    with httpx.stream("GET", page.url + "live/queues", timeout=60) as stream:
        data = next(line for line in stream.iter_lines() if line.startswith("data: "))
    numbers = json.loads(data.removeprefix("data: "))
    text = page.text("/queues")
    for name, number in numbers.items():
        assert f'data-cell="{name}">{number}<' in text or name not in text


def test_an_unexpected_error_is_a_page_without_its_text(page: WebPage, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("with a secret in it")

    monkeypatch.setattr("ferryman.cli.ui.consumers.queue_list", broken)
    response = page.get("/consumers")
    assert response.status_code == 500
    assert "secret" not in response.text


def test_what_fails_in_the_background_is_said_on_the_page() -> None:
    def broken(_look: object) -> None:
        raise UsageError("this can't be")

    look = Background().fresh(("broken",), broken, 1.0, 5.0)
    assert (look.failure, look.found, look.is_running) == ("this can't be", None, False)


def test_what_a_page_is_given_stays_what_it_was_though_the_look_ends_while_the_page_is_made() -> None:
    background, may_end = Background(), threading.Event()
    seen = background.fresh(("slow",), lambda _look: may_end.wait(60), 1.0, 0.0)
    may_end.set()
    background.look(("slow",), lambda _look: False).wait(60)
    assert (seen.is_running, seen.found) == (True, None), "or a page says that there is nothing, and does not look again"
    later = background.fresh(("slow",), lambda _look: False, 60.0)
    assert (later.is_running, later.found) == (False, True)


def test_an_audit_runs_beside_the_page_and_tells_what_is_broken(page: WebPage, client: redis.Redis) -> None:
    _stored(client)
    client.zadd("ferryman:{mail}:waiting", {"ghost": 1})
    page.send("/audit/start", {})
    page.scanned(("audit", "ferryman", "ferryman"))
    text = page.text("/audit")
    assert "ghost" in text
    assert "Audit again" in text
    assert "--repair" in text


def test_an_audit_of_nothing_says_what_is_there_instead(page: WebPage) -> None:
    page.send("/audit/start", {})
    look = page.app.state.shared.background.look(("audit", "ferryman", "ferryman"), lambda _look: None)
    look.wait(120)
    assert "no ferryman keys" in page.text("/audit")


def _documented_rights() -> list[str]:
    """The rule in docs/ui.md, from what follows the password."""
    text = (Path(__file__).parents[2] / "docs" / "ui.md").read_text("utf-8")
    found = re.search(r"ACL SETUSER pages on >secret ((?:.*\\\n)*.*)\n", text)
    assert found is not None
    return found[1].replace("\\\n", " ").split()


@pytest.mark.parametrize("name", ["ferryman", "kue"])
def test_the_documented_rights_are_enough_for_every_page(server: Server, client: redis.Redis, name: str) -> None:
    family = get_family(name)
    store(client, family, family.default_prefix, list(family.generate(60, 1, NOW)), NOW)
    client.execute_command("ACL", "SETUSER", "pages", "reset", "on", ">secret", *_documented_rights())
    try:
        with web_page(server.url(family=name).replace("://", "://pages:secret@")) as page:
            queues = page.text("/queues")
            links = [html.unescape(each) for each in re.findall(r'href="(/(?:queue|jobs)\?[^"]+)"', queues)][:8]
            assert links
            for path in ("/", "/dead", "/consumers", "/migrations", "/audit", *links):
                text = page.text(path)
                assert "may not" not in text, path
                for job in re.findall(r'href="(/job\?[^"]+)"', text)[:1]:
                    assert "Payload" in page.text(html.unescape(job))
    finally:
        client.execute_command("ACL", "DELUSER", "pages")
