"""What operators do: on one job, on all that match, on a queue; and what those learn who come too late or may not."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis
from celery import Celery
from ferryman.cli.ui.settings import Role
from ferryman.operations import numbers
from ferryman.operations.numbers import Numbers
from ferryman.schema.connection.address import Address
from ferryman.schema.family import get_family
from ferryman.schema.job import Job, State
from ferryman.testing.keyspaces import store
from kombu import Connection

from ..support.servers import Server
from ..support.webpage import WebPage, web_page

NOW = 1_700_000_000_000
"""Long ago: what is created later than an action begins is no part of it."""
BODY = b'[[1],{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]'


@pytest.fixture
def jobs(client: redis.Redis) -> list[Job]:
    """Some jobs of a queue: 3 wait, 1 is scheduled, 5 are dead."""
    states = [State.WAITING] * 3 + [State.SCHEDULED] + [State.FAILED] * 5
    found = [
        Job(
            f"id-{at}",
            "mail",
            "send" if at != 8 else "other",
            state,
            priority=0,
            payload=BODY,
            created_at=NOW,
            due_at=NOW * 2 if state is State.SCHEDULED else None,
            finished_at=NOW if state is State.FAILED else None,
            error="no route to host" if state is State.FAILED else None,
        )
        for at, state in enumerate(states)
    ]
    store(client, get_family("ferryman"), "ferryman", found, NOW)
    return found


def _notices(page: WebPage, response: httpx.Response) -> str:
    assert response.status_code == 303, response.text
    text = page.http.get(response.headers["location"]).text
    return html.unescape(" ".join(re.findall(r'class="notice \w+" role="status">([^<]+)', text)))


def _act(page: WebPage, job_id: str, action: str, **sent: str) -> str:
    return _notices(page, page.send("/job/act", {"action": action, **sent}, {"queue": "mail", "id": job_id}))


def _count(server: Server, queue: str = "mail") -> Numbers:
    found = numbers.look(Address.parse(server.url()), (queue,))[queue]
    assert isinstance(found, Numbers)
    return found


@pytest.mark.usefixtures("jobs")
def test_each_action_on_one_job(page: WebPage, server: Server) -> None:
    assert "waits again" in _act(page, "id-4", "requeue")
    assert "waits from now on" in _act(page, "id-3", "promote")
    assert "new priority" in _act(page, "id-0", "reprioritise", priority="7")
    assert "new payload" in _act(page, "id-1", "edit", payload=BODY.decode().replace("[1]", "[2]"))
    assert "is cancelled" in _act(page, "id-2", "cancel")
    assert "is deleted" in _act(page, "id-5", "delete")
    found = _count(server)
    assert (found.number(State.WAITING), found.number(State.SCHEDULED)) == (4, 0)
    assert found.waiting["7"] == 1
    assert "[\n  2\n]" in page.text("/job", queue="mail", id="id-1")


@pytest.mark.usefixtures("jobs")
def test_who_comes_too_late_learns_it_and_nothing_is_done_twice(page: WebPage, server: Server) -> None:
    assert "waits again" in _act(page, "id-4", "requeue")
    assert "Nothing was done" in _act(page, "id-4", "requeue")
    assert "is deleted" in _act(page, "id-5", "delete")
    response = page.send("/job/act", {"action": "delete"}, {"queue": "mail", "id": "id-5"})
    text = page.http.get(response.headers["location"]).text
    assert "not there any more" in text
    with Connection(server.url()) as connection:
        consumer = connection.SimpleQueue("mail")
        message = consumer.get(timeout=5)
        held = re.search(r'href="/job\?queue=mail&amp;id=([^"]+)"', page.text("/jobs?queue=mail&state=active"))
        assert held is not None
        assert "a consumer has" in _act(page, held[1], "delete")
        message.ack()
        consumer.close()


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ({"action": "explode"}, "nothing that can be done"),
        ({"action": "reprioritise", "priority": "high"}, "must be a number"),
        ({"action": "reprioritise", "priority": "1e999"}, "must be a number"),
        ({"action": "reprioritise", "priority": "12345"}, "priority"),
        ({"action": "move", "to": ""}, "queue"),
        ({}, "nothing that can be done"),
    ],
)
def test_a_mistake_is_one_sentence(page: WebPage, sent: dict[str, str], said: str) -> None:
    response = page.send("/job/act", sent, {"queue": "mail", "id": "id-0"})
    assert response.status_code == 400
    assert said in response.text


@pytest.mark.usefixtures("jobs")
def test_a_queue_is_paused_resumed_and_drained(page: WebPage, server: Server) -> None:
    def act(**sent: str) -> str:
        return _notices(page, page.send("/queue/act", sent, {"queue": "mail"}))

    assert "Paused." in act(action="pause")
    assert "paused already" in act(action="pause")
    assert "This queue is paused" in page.text("/queue", queue="mail")
    assert ">paused<" in page.text("/queues")
    assert "Resumed." in act(action="resume")
    assert "not paused any more" in act(action="resume")
    refused = page.send("/queue/act", {"action": "drain"}, {"queue": "mail"})
    assert refused.status_code == 400
    assert _count(server).number(State.WAITING) == 3
    assert "4 jobs are deleted" in act(action="drain", sure="yes")
    assert _count(server).number(State.WAITING) == 0
    assert _count(server).number(State.FAILED) == 5


@pytest.mark.usefixtures("jobs")
def test_all_that_match_are_counted_first_and_acted_on_when_confirmed(page: WebPage, server: Server) -> None:
    query = {"queue": "mail", "state": "failed", "task": "send", "reason": "no route"}
    assert '<strong class="big">4</strong> of 5' in page.text("/bulk", **query)
    assert page.send("/bulk", {"action": "requeue"}, dict(query)).status_code == 400
    assert page.send("/bulk", {"action": "promote", "sure": "yes"}, dict(query)).status_code == 400
    assert _count(server).number(State.FAILED) == 5
    assert "Done: 4 jobs" in _notices(page, page.send("/bulk", {"action": "requeue", "sure": "yes"}, dict(query)))
    assert _count(server).number(State.WAITING) == 7
    assert _count(server).number(State.FAILED) == 1


@pytest.mark.usefixtures("jobs")
def test_a_group_of_dead_letters_leads_to_what_can_be_done_to_it(page: WebPage) -> None:
    text = page.text("/dead")
    assert "no route to host" in text
    links = [html.unescape(each) for each in re.findall(r'href="(/bulk\?[^"]+)"', text)]
    assert [re.search(r"<strong class=\"big\">(\d+)", page.text(link))[1] for link in links] == ["4", "1"]  # type: ignore[index]


def test_a_task_is_published_from_the_page(page: WebPage, server: Server) -> None:
    with Connection(server.url()) as connection:
        consumer = connection.SimpleQueue("mail")
        sent = {"task": "send", "args": '["ann"]', "kwargs": '{"cc": "böb"}', "priority": "3", "delay": ""}
        assert "Published send" in _notices(page, page.send("/enqueue", sent, {"queue": "mail"}))
        message = consumer.get(timeout=5)
        assert message.headers["task"] == "send"
        assert message.payload[:2] == [["ann"], {"cc": "böb"}]
        message.ack()
        consumer.close()
    sent["delay"] = "3600"
    page.send("/enqueue", sent, {"queue": "mail"})
    assert _count(server).number(State.SCHEDULED) == 1


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("args", "{}", "must be a list"),
        ("args", "[NaN]", "must be JSON"),
        ("args", "[" * 600, "must be JSON"),
        ("kwargs", "[1]", "must be an object"),
        ("priority", "-1", "whole number"),
        ("priority", "x", "whole number"),
        ("delay", "soon", "number of seconds"),
        ("delay", "inf", "number of seconds"),
        ("task", "", "name the task"),
    ],
)
def test_a_mistake_in_the_form_leaves_it_filled_in(page: WebPage, name: str, value: str, said: str) -> None:
    sent = {"task": "send", "args": '["keep me"]', "kwargs": "{}", "priority": "", "delay": ""} | {name: value}
    response = page.send("/enqueue", sent, {"queue": "mail"})
    assert response.status_code == 400
    assert said in html.unescape(response.text)
    assert name == "args" or "keep me" in response.text


@pytest.mark.usefixtures("jobs")
def test_a_copy_has_the_true_arguments(page: WebPage) -> None:
    text = page.text("/enqueue", queue="mail", id="id-4")
    assert 'value="send"' in text
    assert "[\n  1\n]" in text


ACTIONS = [
    ("/job/act", {"action": "delete"}),
    ("/queue/act", {"action": "drain", "sure": "yes"}),
    ("/bulk", {"action": "delete", "sure": "yes"}),
    ("/bulk/stop", {}),
    ("/enqueue", {"task": "send"}),
]


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize("settings", [{"may_write": False}, {"may_write": True, "tokens": {Role.READER: "r" * 20}}])
def test_who_may_only_look_changes_nothing(server: Server, settings: dict[str, object]) -> None:
    with web_page(server.url(), **settings) as page:
        headers = {"Authorization": f"Bearer {'r' * 20}"} if "tokens" in settings else {}
        query = {"queue": "mail", "id": "id-0", "state": "failed"}
        for path, sent in ACTIONS:
            response = (
                page.http.post(f"{path}?queue=mail&id=id-0&state=failed", data=sent, headers=headers)
                if headers
                else page.send(path, sent, dict(query))
            )
            assert response.status_code == 403, path
        for path in ("/queue", "/job"):
            text = page.http.get(f"{path}?queue=mail&id=id-0", headers=headers).text
            assert 'aria-label="Actions"' not in text
        assert page.http.get("/enqueue?queue=mail", headers=headers).status_code == 403
    found = _count(server)
    assert (found.number(State.WAITING), found.number(State.FAILED)) == (3, 5)


@pytest.fixture
def logged(server: Server, tmp_path: Path) -> Iterator[tuple[WebPage, Path]]:
    path = tmp_path / "actions.jsonl"
    with web_page(server.url(), may_write=True, audit_log=path) as page:
        yield page, path


@pytest.mark.usefixtures("jobs")
def test_every_action_is_logged_with_its_outcome(logged: tuple[WebPage, Path]) -> None:
    page, path = logged
    _act(page, "id-4", "requeue")
    _act(page, "id-4", "requeue")
    page.send("/enqueue", {"task": "send"}, {"queue": "mail"})
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(each["action"], each["outcome"]) for each in records] == [
        ("requeue", "done"),
        ("requeue", "refused"),
        ("enqueue", "done"),
    ]
    assert {each["by"] for each in records} == {"local"}
    text = page.text("/log")
    assert text.count("id-4") == 2


@pytest.mark.usefixtures("jobs")
def test_a_payload_that_no_field_can_hold_is_not_offered_for_editing(page: WebPage, client: redis.Redis) -> None:
    family = get_family("ferryman")
    job = Job("odd", "mail", "send", State.WAITING, priority=0, payload=b"\xff\x00", created_at=NOW)
    store(client, family, "ferryman", [job], NOW)
    text = page.text("/job", queue="mail", id="odd")
    assert "no text that a form can hold" in text
    assert "<textarea" not in text


def test_families_that_cannot_do_something_say_so(page: WebPage, client: redis.Redis) -> None:
    family = get_family("kombu")
    store(client, family, family.default_prefix, list(family.generate(20, 1, NOW)), NOW)
    text = page.text("/queue", queue="celery", family="kombu")
    assert "disabled" in text


@pytest.mark.usefixtures("jobs")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a file that is always full")
def test_an_action_that_could_not_be_logged_is_said_to_be_done(server: Server, logged: tuple[WebPage, Path]) -> None:
    page, path = logged
    path.unlink()
    path.symlink_to("/dev/full")
    response = page.send("/job/act", {"action": "requeue"}, {"queue": "mail", "id": "id-4"})
    assert response.status_code == 500
    assert "Done, but not recorded" in response.text
    assert _count(server).number(State.WAITING) == 4


def test_a_page_of_an_app_tells_its_result_backend_of_what_is_cancelled(server: Server) -> None:
    with (
        Celery("steering", broker=server.url(), backend=f"redis://{server.host}:{server.port}/2") as app,
        web_page(server.url(), may_write=True, app=app) as page,
    ):
        alone = app.send_task("send", queue="mail")
        found = re.search(r'href="/job\?queue=mail&amp;id=([^"]+)"', page.text("/jobs?queue=mail&state=waiting"))
        assert found is not None
        assert "told" not in _act(page, found[1], "cancel")
        assert alone.state == "REVOKED"
        many = [app.send_task("send", queue="mail") for _ in range(3)]
        query = {"queue": "mail", "state": "waiting"}
        assert "No result backend" not in page.text("/bulk", **query)
        assert "Done: 3 jobs" in _notices(page, page.send("/bulk", {"action": "cancel", "sure": "yes"}, dict(query)))
        assert [each.state for each in many] == ["REVOKED"] * 3


@pytest.mark.usefixtures("jobs")
def test_a_page_without_an_app_says_that_no_result_backend_is_told(page: WebPage) -> None:
    assert "celery -A APP ferryman ui tells" in page.text("/bulk", queue="mail", state="waiting")
    assert "celery -A APP ferryman ui tells" in _act(page, "id-2", "cancel")
    assert "told" not in _act(page, "id-5", "delete")
