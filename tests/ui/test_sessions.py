"""Sessions of the web page: how they begin and end, what their cookies show, and what a wrong token costs and leaves."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterator
from itertools import islice

import httpx
import pytest
from ferryman.cli.ui import sessions as session_module
from ferryman.cli.ui.settings import Proxy, Role

from ..support.servers import Server
from ..support.webpage import WebPage, web_page

OPERATOR, READER = "operator-secret-0123456789", "reader-secret-0123456789"
TOKENS = {Role.OPERATOR: OPERATOR, Role.READER: READER}


@pytest.fixture
def guarded(server: Server) -> Iterator[WebPage]:
    with web_page(server.url(), may_write=True, tokens=TOKENS) as found:
        yield found


def log_in(page: WebPage, token: str) -> httpx.Response:
    form_token = page.text("/login").split('name="form_token" value="')[1].split('"')[0]
    sent = {"form_token": form_token, "token": token, "next": "/queues"}
    return page.http.post("/login", data=sent, headers={"Origin": page.url.rstrip("/")})


def form_token(page: WebPage) -> str:
    return page.text("/queues").split('name="form_token" value="')[1].split('"')[0]


def log_out(page: WebPage) -> httpx.Response:
    return page.http.post("/logout", data={"form_token": form_token(page)}, headers={"Origin": page.url.rstrip("/")})


def cookie(page: WebPage) -> dict[str, str]:
    ((name, value),) = page.http.cookies.items()
    return {"Cookie": f"{name}={value}"}


def test_a_cookie_of_a_stranger_is_not_signed_by_the_tokens(guarded: WebPage) -> None:
    value = guarded.http.get("/login").headers["set-cookie"].split(";")[0].split("=", 1)[1]
    words, _, signature = value.rpartition(".")
    named = f"ferryman ui\0operator={OPERATOR}\0reader={READER}"
    for key in (named, OPERATOR, READER):
        for secret in (key.encode(), hashlib.sha256(key.encode()).digest()):
            assert hmac.new(secret, words.encode(), hashlib.sha256).hexdigest() != signature


def test_a_restart_with_the_same_tokens_ends_all_sessions(guarded: WebPage, server: Server) -> None:
    log_in(guarded, READER)
    with web_page(server.url(), tokens=TOKENS) as other:
        value = cookie(guarded)["Cookie"].split("=", 1)[1]
        other_name = other.app.state.shared.sessions.cookie
        assert other.http.get("/queues", headers={"Cookie": f"{other_name}={value}"}).status_code == 303


def test_a_copied_cookie_is_worth_nothing_after_the_logout(guarded: WebPage) -> None:
    log_in(guarded, OPERATOR)
    copied, token = cookie(guarded), form_token(guarded)
    assert log_out(guarded).status_code == 303
    with httpx.Client(base_url=guarded.url, headers=copied, timeout=60) as thief:
        assert thief.get("/queues").status_code == 303
        assert thief.get("/live/queues").status_code == 401
        sent = {"form_token": token, "action": "pause"}
        assert thief.post("/queue/act?queue=mail", data=sent, headers={"Origin": guarded.url.rstrip("/")}).status_code == 401


def test_live_numbers_end_with_their_session(guarded: WebPage) -> None:
    log_in(guarded, OPERATOR)
    with (
        httpx.Client(base_url=guarded.url, headers=cookie(guarded), timeout=60) as thief,
        thief.stream("GET", "/live/queues") as stream,
    ):
        events = (line for line in stream.iter_lines() if line.startswith("event: "))
        assert next(events)
        log_out(guarded)
        assert len(list(islice(events, 20))) < 20


def test_a_logout_ends_no_other_session(guarded: WebPage) -> None:
    log_in(guarded, OPERATOR)
    kept = cookie(guarded)
    guarded.http.cookies.clear()
    log_in(guarded, OPERATOR)
    log_out(guarded)
    assert httpx.get(f"{guarded.url}queues", headers=kept, timeout=60).status_code == 200


def test_a_login_gives_a_new_cookie_and_ends_the_session_before_it(guarded: WebPage) -> None:
    log_in(guarded, READER)
    before = cookie(guarded)
    guarded.http.cookies.clear()
    guarded.http.headers.update(before)
    response = log_in(guarded, OPERATOR)
    del guarded.http.headers["Cookie"]
    assert response.status_code == 303
    assert before["Cookie"] not in response.headers["set-cookie"]
    assert httpx.get(f"{guarded.url}queues", headers=before, timeout=60).status_code == 303


def test_an_ended_session_is_remembered_until_its_cookie_expires(guarded: WebPage, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = guarded.app.state.shared.sessions
    now = time.time()
    first = sessions.read(sessions.new(Role.READER))
    sessions.end(first)
    monkeypatch.setattr(session_module.time, "time", lambda: now + session_module.SESSION_S + 60)
    second = sessions.read(sessions.new(Role.READER))
    sessions.end(second)
    assert not sessions.is_open(first)
    assert not sessions.is_open(second)
    assert len(sessions._ended) == 1


def test_strangers_fill_no_memory_by_logging_out(page: WebPage) -> None:
    page.send("/logout", {})
    assert not page.app.state.shared.sessions._ended


@pytest.mark.parametrize("scheme", ["https", "HTTPS", "https, http"])
def test_cookies_are_secure_behind_a_proxy_with_tls(guarded: WebPage, scheme: str) -> None:
    guarded.http.headers["X-Forwarded-Proto"] = scheme
    given = []

    def keep(response: httpx.Response) -> None:
        """Does as a browser with HTTPS: it sends the cookie again."""
        if "set-cookie" in response.headers:
            given.append(response.headers["set-cookie"])
            guarded.http.headers["Cookie"] = given[-1].split(";")[0]

    guarded.http.event_hooks["response"] = [keep]
    assert log_in(guarded, READER).status_code == 303
    assert log_out(guarded).status_code == 303
    assert len(given) == 3
    for value in given:
        assert value.endswith("; Secure")


def refusals(capfd: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capfd.readouterr().err.splitlines() if "refused a wrong token" in line]


def test_wrong_tokens_are_logged_with_the_address_and_without_the_token(
    guarded: WebPage, capfd: pytest.CaptureFixture[str]
) -> None:
    log_in(guarded, "guess-in-the-form-0123")
    guarded.http.get("/queues", headers={"Authorization": "Bearer guess-in-a-header-0123", "X-Forwarded-For": "192.0.2.7"})
    guarded.http.get("/queues", headers={"Authorization": "Bearer x", "X-Forwarded-For": b"\x9b2J" + b"9" * 5000})
    form, header, hostile = refusals(capfd)
    assert form == "ferryman: refused a wrong token from 127.0.0.1"
    assert header == "ferryman: refused a wrong token from 127.0.0.1 (X-Forwarded-For: 192.0.2.7)"
    assert "\x9b" not in hostile
    assert len(hostile) < 200


@pytest.mark.parametrize("path", ["/queues", "/login", "/static/ferryman.css", "/live/queues", "/nowhere"])
def test_every_path_refuses_a_wrong_bearer_token_after_a_pause(
    guarded: WebPage, capfd: pytest.CaptureFixture[str], path: str
) -> None:
    log_in(guarded, READER)  # readers can't guess the operator's token at full speed either
    assert guarded.http.get(path, headers={"Authorization": f"Bearer {OPERATOR}x"}).status_code == 401
    assert len(refusals(capfd)) == 1


def test_other_authorization_headers_change_nothing(guarded: WebPage, capfd: pytest.CaptureFixture[str]) -> None:
    for value in ("Basic YW5uOmFubg==", f"Basic {OPERATOR}", "Negotiate abc", "Digest username=ann", OPERATOR):
        assert guarded.http.get("/queues", headers={"Authorization": value}).status_code == 303
    log_in(guarded, READER)
    assert guarded.http.get("/queues", headers={"Authorization": "Basic YW5uOmFubg=="}).status_code == 200
    assert not refusals(capfd)


def test_a_page_without_tokens_ignores_bearer_tokens_of_the_proxy(server: Server) -> None:
    proxy = Proxy("remote-user", frozenset({"ann"}), frozenset({"127.0.0.1"}))
    with web_page(server.url(), may_write=True, proxy=proxy) as page:
        headers = {"Remote-User": "ann", "Authorization": "Bearer eyJhbGciOiJub25lIn0.e30."}
        assert ">operator<" in page.http.get("/queues", headers=headers).text
        # What browsers may send for another site replaces no form token.
        sent = {"action": "pause"}
        assert page.http.post("/queue/act?queue=mail", data=sent, headers=headers).status_code == 403
        headers["Origin"] = page.url.rstrip("/")
        assert page.http.post("/queue/act?queue=mail", data=sent, headers=headers).status_code == 403
