"""What the page gives back to a form or a link is the same text that Redis has, whatever is in it."""

from __future__ import annotations

import html
import json
import re
from urllib.parse import urlencode

import pytest
import redis
from celery import Celery
from ferryman.cli.ui.render import exact, link
from ferryman.schema.family import get_family
from ferryman.schema.job import Job, State
from ferryman.testing.keyspaces import store

from ..support.servers import Server
from ..support.webpage import WebPage

NOW = 1_700_000_000_000
TEXTS = {
    "no-break space": "prix\u00a0: 5",
    "joined emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "ideographic space": "日\u3000本",
    "tag": "\U000e0041",
    "line separator": "a\u2028b",
    "byte order mark": "\ufeffx",
    "line ends": "a\r\nb\tc",
    "direction": "\u202egnp.exe",
    "control": "\x1b[2J\x80\x9b",
    "HTML": '</textarea><script>"&amp;',
    "backslashes": "\\u00a0 \\xa0",
}


def field(page: str, name: str) -> str:
    found = re.search(rf'<textarea id="{name}"[^>]*>(.*?)</textarea>', page, re.DOTALL)
    assert found, page
    return html.unescape(found[1])


def messages(client: redis.Redis) -> list[list[object]]:
    """Arguments and keyword arguments of all messages."""
    found = [client.hget(key, "message") for key in client.scan_iter("ferryman:{mail}:job:*")]
    return sorted((json.loads(each.partition(b"\n")[2])[:2] for each in found if each), key=str)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_copy_has_the_arguments_of_its_job(page: WebPage, server: Server, client: redis.Redis, text: str) -> None:
    with Celery("copy", broker=server.url()) as app:
        app.send_task("proj.mail", args=[text], kwargs={"k": text}, queue="mail")
    (key,) = client.scan_iter("ferryman:{mail}:job:*")
    job_id = key.decode().rpartition(":")[2]
    form = page.text("/enqueue", queue="mail", id=job_id)
    sent = {"task": "proj.mail", "args": field(form, "args"), "kwargs": field(form, "kwargs"), "priority": "", "delay": ""}
    # As a browser does.
    sent = {name: value.replace("\n", "\r\n") for name, value in sent.items()}
    assert page.send("/enqueue", sent, {"queue": "mail"}).status_code == 303
    assert messages(client) == [[[text], {"k": text}]] * 2


def test_a_form_with_a_mistake_comes_back_with_the_same_arguments(page: WebPage, client: redis.Redis) -> None:
    args = '[\r\n  "prix\u00a0: 5"\r\n]'
    sent = {"task": "proj.mail", "args": args, "kwargs": "{}", "priority": "-1", "delay": ""}
    response = page.send("/enqueue", sent, {"queue": "mail"})
    assert response.status_code == 400
    sent |= {"args": field(response.text, "args"), "priority": ""}
    assert page.send("/enqueue", sent, {"queue": "mail"}).status_code == 303
    assert messages(client) == [[["prix\u00a0: 5"], {}]]


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_the_payload_on_the_page_of_a_job_is_json_with_the_same_value(page: WebPage, client: redis.Redis, text: str) -> None:
    payload = json.dumps([[text], {}, {}], ensure_ascii=False).encode()
    job = Job("1", "mail", "send", State.WAITING, priority=0, payload=payload, created_at=NOW)
    store(client, get_family("ferryman"), "ferryman", [job], NOW)
    shown = page.text("/job", queue="mail", id="1")
    found = re.search(r'<pre tabindex="0" aria-label="Arguments"><code>(.*?)</code>', shown, re.DOTALL)
    assert found
    assert json.loads(html.unescape(found[1])) == [text]


def test_links_of_long_names_lead_to_their_job(page: WebPage, client: redis.Redis) -> None:
    queue, job_id = "überlange " * 400, "id-" + "x" * 3000
    job = Job(job_id, queue, "send", State.WAITING, priority=0, payload=b"{}", created_at=NOW)
    store(client, get_family("ferryman"), "ferryman", [job], NOW)
    jobs = page.text("/jobs", queue=queue, state="waiting")
    (target,) = {html.unescape(each) for each in re.findall(r'href="(/job\?[^"]*)"', jobs)}
    assert target == "/job?" + urlencode({"queue": queue, "id": job_id}).replace("+", "%20")
    shown = page.http.get(target)
    assert shown.status_code == 200
    (action,) = {html.unescape(each) for each in re.findall(r'action="(/job/act[^"]*)"', shown.text)}
    assert action.endswith("x" * 3000)
    assert 'data-live="/live/queue?queue=' in page.text("/queue", queue=queue)


def test_a_filter_comes_back_as_it_was(page: WebPage, client: redis.Redis) -> None:
    job = Job("1", "mail", "send", State.WAITING, priority=0, payload='["prix\u00a05"]'.encode(), created_at=NOW)
    store(client, get_family("ferryman"), "ferryman", [job], NOW)
    text = page.text("/jobs", queue="mail", state="waiting", text="prix\u00a05" + "x" * 3000)
    found = re.search(r'name="text" value="([^"]*)"', text)
    assert found
    assert html.unescape(found[1]) == "prix\u00a05" + "x" * 3000
    assert "\u00a0" not in text


def test_an_input_has_its_text_and_nothing_that_cannot_be_seen() -> None:
    assert html.unescape(exact('"&<\u202e\U000e0041é')) == '"&<\u202e\U000e0041é'
    assert str(exact("\u202e")) == "&#x202e;"
    assert str(exact("\x80\x1b")) == r"\x80\x1b"


def test_a_name_of_a_parameter_adds_no_other_one() -> None:
    assert link("/jobs", {"a&b=c#": "1"}) == "/jobs?a%26b%3Dc%23=1"
