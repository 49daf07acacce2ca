"""Who may ask the web page what: host names, roles, tokens, proxies, forms of other sites, and what browsers are told."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from ferryman.cli.ui.settings import Proxy, Role

from ..support.servers import Server
from ..support.webpage import WebPage, web_page

OPERATOR, READER = "operator-secret-0123456789", "reader-secret-0123456789"
TOKENS = {Role.OPERATOR: OPERATOR, Role.READER: READER}


@pytest.fixture
def guarded(server: Server) -> Iterator[WebPage]:
    with web_page(server.url(), may_write=True, tokens=TOKENS) as found:
        yield found


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "", "127.0.0.1.nip.io", "[::2]", "[", "localhost, evil"]
)
def test_another_host_name_is_refused(page: WebPage, host: str) -> None:
    assert page.http.get("/queues", headers={"Host": host}).status_code in (400, 421)


@pytest.mark.parametrize("host", ["localhost:8710", "LOCALHOST", "127.0.0.1", "[::1]:80"])
def test_names_of_this_machine_are_served(page: WebPage, host: str) -> None:
    assert page.http.get("/queues", headers={"Host": host}).status_code == 200


def test_a_public_name_is_served_where_it_was_given(server: Server) -> None:
    with web_page(server.url(), public_hosts=frozenset({"queues.example.org"})) as page:
        assert page.http.get("/queues", headers={"Host": "Queues.Example.org"}).status_code == 200


@pytest.mark.parametrize("path", ["/", "/queues", "/nowhere", "/login", "/static/ferryman.css", "/queue?queue=none"])
def test_every_answer_keeps_other_sites_out(page: WebPage, path: str) -> None:
    headers = page.http.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-frame-options"] == "DENY"
    assert headers["x-content-type-options"] == "nosniff"
    assert "no-store" in headers["cache-control"] or path.startswith("/static/")


def test_pages_have_nothing_inline_and_ask_no_other_host(page: WebPage) -> None:
    text = page.text("/queues")
    assert "<style" not in text
    assert " style=" not in text
    assert " onclick" not in text
    assert "http://" not in text
    assert "https://" not in text


def test_the_cookie_is_for_this_site_and_no_script(page: WebPage) -> None:
    cookie = page.http.get("/queues").headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


@pytest.mark.parametrize("origin", ["http://evil.example", "null", None, "http://localhost:1", "http://["])
def test_a_form_of_another_site_is_refused(page: WebPage, origin: str | None) -> None:
    headers = {} if origin is None else {"Origin": origin}
    response = page.http.post("/queues/count", data={"form_token": page.form_token()}, headers=headers)
    assert response.status_code == 403


@pytest.mark.parametrize("token", ["", "0" * 64, None])
def test_a_form_without_its_token_is_refused(page: WebPage, token: str | None) -> None:
    page.text("/queues")
    sent = {} if token is None else {"form_token": token}
    response = page.http.post("/queues/count", data=sent, headers={"Origin": page.url.rstrip("/")})
    assert response.status_code == 403
    assert "reload the page" in response.text


def test_a_form_of_another_session_is_refused(page: WebPage) -> None:
    token = page.form_token()
    with httpx.Client(base_url=page.url, timeout=60) as other:
        other.get("/queues")
        sent = {"form_token": token}
        assert other.post("/queues/count", data=sent, headers={"Origin": page.url.rstrip("/")}).status_code == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_methods_are_refused(page: WebPage, method: str) -> None:
    assert page.http.request(method, "/queues").status_code == 405


def test_nothing_is_shown_before_the_login(guarded: WebPage) -> None:
    for path in ("/", "/queues", "/job?queue=a&id=b"):
        response = guarded.http.get(path)
        assert response.status_code == 303
        assert response.headers["location"].startswith("/login?next=")
    assert guarded.http.get("/live/queues").status_code == 401
    assert guarded.http.post("/queues/count", headers={"Origin": guarded.url.rstrip("/")}).status_code == 401


def _log_in(page: WebPage, token: str, after: str = "/queues") -> httpx.Response:
    text = page.text("/login", next=after)
    form_token = text.split('name="form_token" value="')[1].split('"')[0]
    sent = {"form_token": form_token, "token": token, "next": after}
    return page.http.post("/login", data=sent, headers={"Origin": page.url.rstrip("/")})


def test_a_token_opens_the_page_that_was_asked_for(guarded: WebPage) -> None:
    response = _log_in(guarded, OPERATOR, "/queues?text=a")
    assert (response.status_code, response.headers["location"]) == (303, "/queues?text=a")
    assert ">operator<" in guarded.text("/queues")


def test_a_reader_is_one(guarded: WebPage) -> None:
    _log_in(guarded, READER)
    assert ">reader<" in guarded.text("/queues")


def test_a_wrong_token_opens_nothing(guarded: WebPage) -> None:
    assert _log_in(guarded, OPERATOR + "x").status_code == 403
    assert guarded.http.get("/queues").status_code == 303


@pytest.mark.parametrize("after", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_the_login_leads_to_no_other_site(guarded: WebPage, after: str) -> None:
    assert _log_in(guarded, READER, after).headers["location"] == "/"


def test_the_logout_ends_the_session(guarded: WebPage) -> None:
    _log_in(guarded, READER)
    guarded.send("/logout", {})
    assert guarded.http.get("/queues").status_code == 303


def test_a_forged_session_is_none(guarded: WebPage) -> None:
    _log_in(guarded, READER)
    ((name, value),) = guarded.http.cookies.items()
    guarded.http.cookies.clear()
    forged = value.replace(".reader.", ".operator.")
    assert guarded.http.get("/queues", headers={"Cookie": f"{name}={forged}"}).status_code == 303
    assert guarded.http.get("/queues", headers={"Cookie": f"{name}={value}"}).status_code == 200


def test_programs_send_the_token_in_a_header(guarded: WebPage) -> None:
    assert guarded.http.get("/queues", headers={"Authorization": f"Bearer {READER}"}).status_code == 200
    assert guarded.http.get("/live/queues", headers={"Authorization": "Bearer no"}).status_code == 401


def test_a_proxy_names_its_users(server: Server) -> None:
    proxy = Proxy("remote-user", frozenset({"ann"}), frozenset({"127.0.0.1"}))
    with web_page(server.url(), may_write=True, proxy=proxy) as page:
        assert ">operator<" in page.http.get("/queues", headers={"Remote-User": "ann"}).text
        assert ">reader<" in page.http.get("/queues", headers={"Remote-User": "bob"}).text
        assert page.http.get("/queues").status_code == 303
        twice = [("Remote-User", "bob"), ("Remote-User", "ann")]
        assert page.http.get("/queues", headers=twice).status_code == 303


def test_the_header_of_a_proxy_means_nothing_from_elsewhere(server: Server) -> None:
    proxy = Proxy("remote-user", frozenset({"ann"}), frozenset({"192.0.2.1"}))
    with web_page(server.url(), may_write=True, proxy=proxy) as page:
        assert page.http.get("/queues", headers={"Remote-User": "ann"}).status_code == 303


def test_what_is_too_long_is_refused(page: WebPage) -> None:
    token = page.form_token()
    sent = {"form_token": token, "text": "x" * (5 << 20)}
    assert page.http.post("/queues/count", data=sent, headers={"Origin": page.url.rstrip("/")}).status_code == 413
    assert page.http.get("/queues?" + "&".join(f"a{number}=1" for number in range(300))).status_code == 400
