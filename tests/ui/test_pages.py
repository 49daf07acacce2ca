"""Every page of every family; and whatever stands in Redis stays text on all of them."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from itertools import cycle

import pytest
import redis
from ferryman.schema.family import get_family
from ferryman.schema.job import Job, State
from ferryman.testing.keyspaces import store
from kombu import Connection

from ..support.families import GENERATING
from ..support.mending import NOW
from ..support.servers import Server
from ..support.webpage import WebPage

PAGES = ("/", "/queues", "/jobs", "/dead", "/consumers", "/audit", "/migrations", "/log")

HOSTILE = {
    "html": "<script>alert(1)</script>",
    "attribute": "\"' onmouseover=alert(1) x='",
    "template": "{{ 7 * 7 }}{% raw %}",
    "ansi": "\x1b[31mred\x1b[0m\r\n\x07",
    "nul": "a\x00b\x7f\x9b31m",
    "right-to-left": "invoice\u202egnp.exe\u2066\u200f",
    "bytes": "\udcff\udcfe\udc80",
    "surrogate": "\ud83d",
    "query": "a&b=c#d?e/../%2e%00+",
    "long": "x" * 3000,
}
"""Names that would do harm if they were anything but text; as ``schema/text.py`` has them where they are no UTF-8."""

INVISIBLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffd]")


def _links(text: str, path: str) -> Iterator[str]:
    for found in re.findall(r'href="([^"]+)"', text):
        link = html.unescape(found)
        if link.startswith(path + "?"):
            yield link


class _Handlers(HTMLParser):
    """Finds attributes that run scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [
            f"{tag} {name}" for name, value in attrs if name.startswith("on") or (value or "").startswith("javascript:")
        ]


def _handlers(text: str) -> list[str]:
    parser = _Handlers()
    parser.feed(text)
    return parser.found


@pytest.mark.parametrize("name", GENERATING)
def test_every_page_of_every_family_is_shown(page: WebPage, client: redis.Redis, name: str) -> None:
    family = get_family(name)
    store(client, family, family.default_prefix, list(family.generate(120, 3, NOW)), NOW)
    where = {} if name == "ferryman" else {"family": name, "prefix": family.default_prefix}
    for path in ("/dead", "/consumers", "/audit"):
        page.text(path, **where)
    queues = page.text("/queues", **where)
    if "must be read" in queues:
        page.send("/queues/count", {}, dict(where))
        page.scanned(("scan", name, family.default_prefix))
        queues = page.text("/queues", **where)
    (queue, *_) = _links(queues, "/queue")
    page.text(queue)
    jobs = sorted(set(_links(queues, "/jobs")))
    assert jobs
    shown = 0
    for link in jobs[:6]:
        listing = page.text(link)
        for job in list(_links(listing, "/job"))[:2]:
            assert "Payload" in page.text(job)
            shown += 1
    assert shown or "no index" in listing


def _hostile_job(text: str) -> Job:
    return Job(
        id="id-" + text[:60],
        queue="queue-" + text[:60],
        name="task-" + text[:60],
        state=State.FAILED,
        priority=0,
        payload=json.dumps([[text], {"key": text}, {"chord": text}]).encode("utf-8", "surrogatepass"),
        created_at=NOW,
        finished_at=NOW,
        attempts=1,
        error=text,
        worker=text[:60],
    )


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_names_stay_text_and_their_links_work(page: WebPage, client: redis.Redis, kind: str) -> None:
    text, family = HOSTILE[kind], get_family("ferryman")
    store(client, family, family.default_prefix, [_hostile_job(text)], NOW)
    seen = [page.text(path) for path in PAGES]
    queues = page.text("/queues")
    (queue,) = _links(queues, "/queue")
    (failed,) = (link for link in _links(queues, "/jobs") if "state=failed" in link)
    listing = page.text(failed)
    (job,) = _links(listing, "/job")
    story = page.text(job)
    assert "Why it failed" in story
    seen += [queues, page.text(queue), listing, story]
    seen += [page.text(link) for link in _links(page.text("/dead"), "/bulk")]
    for each in seen:
        assert not INVISIBLE.search(each), INVISIBLE.search(each)
        assert "<script>alert" not in each
        assert "onmouseover=alert(1) x='\"" not in each
        assert not _handlers(each)


def test_a_hostile_parameter_is_refused_or_stays_text(page: WebPage) -> None:
    values = cycle(["<script>alert(1)</script>", "\x1b[31m", "-1", "99999999999999999999", b"\xff\xfe", ""])
    for path in ("/queues", "/jobs", "/consumers", "/audit", "/queue", "/job", "/bulk", "/enqueue", "/login"):
        for name in ("queue", "id", "state", "order", "after", "page", "text", "family", "prefix", "older", "next"):
            value = next(values)
            response = page.get(path, **{"queue": "q", "id": "i", name: value})
            assert response.status_code < 500, (path, name, value)
            assert "<script>alert" not in response.text
            assert "\x1b" not in response.text


def test_a_payload_is_shown_readable_and_as_it_stands(page: WebPage, client: redis.Redis) -> None:
    family = get_family("ferryman")
    payload = b'[[1,"na\\u00efve"],{"to":"ann"},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]'
    job = Job("i", "mail", "send", State.WAITING, priority=0, payload=payload, created_at=NOW)
    store(client, family, family.default_prefix, [job], NOW)
    story = html.unescape(page.text("/job", queue="mail", id="i"))
    assert '"naïve"' in story
    assert '"to": "ann"' in story
    assert payload.decode() in story
    download = page.get("/job/payload", queue="mail", id="i")
    assert download.content == payload
    assert download.headers["content-type"] == "application/octet-stream"
    assert download.headers["content-disposition"].startswith("attachment")


def test_a_job_that_is_not_there_is_said_to_be_gone(page: WebPage) -> None:
    response = page.get("/job", queue="mail", id="nothing")
    assert response.status_code == 404
    assert "has ended" in response.text
    assert page.get("/queue", queue="nothing").status_code == 404
    assert page.get("/nowhere").status_code == 404


def test_queues_are_filtered_sorted_and_paged(page: WebPage, client: redis.Redis) -> None:
    family = get_family("ferryman")
    jobs = [
        Job(f"{queue}-{number}", f"queue-{queue:03d}", "task", State.WAITING, priority=0, payload=b"[]", created_at=NOW)
        for queue in range(130)
        for number in range(1 + queue % 3)
    ]
    store(client, family, family.default_prefix, jobs, NOW)

    def names(**query: str | int) -> list[str]:
        return re.findall(r'<bdi class="name">(queue-\d+)</bdi></a></th>', page.text("/queues", **query))

    assert names() == [f"queue-{number:03d}" for number in range(100)]
    assert names(page=2) == [f"queue-{number:03d}" for number in range(100, 130)]
    assert names(text="-12") == [f"queue-{number:03d}" for number in range(120, 130)]
    assert all(int(name[-3:]) % 3 == 2 for name in names(order="waiting")[:43])
    assert "has “nowhere”" in page.text("/queues", text="nowhere")


def test_pages_of_jobs_follow_each_other(page: WebPage, client: redis.Redis) -> None:
    family = get_family("ferryman")
    jobs = [
        Job(
            f"id-{number:03d}", "mail", "task", State.WAITING, priority=0, payload=b"[]", created_at=NOW + number, position=number
        )
        for number in range(120)
    ]
    store(client, family, family.default_prefix, jobs, NOW)
    link, seen = "/jobs?queue=mail&state=waiting", []
    while link:
        text = page.text(link)
        seen += [found.rpartition("=")[2] for found in _links(text, "/job")]
        link = next((found for found in _links(text, "/jobs") if f'rel="next" href="{html.escape(found)}"' in text), "")
    assert seen == [f"id-{number:03d}" for number in reversed(range(120))]
    first = next(_links(page.text("/jobs?queue=mail&state=waiting&order=next"), "/job"))
    assert first.endswith("id-000")


def test_a_large_payload_is_left_out_and_downloaded_in_pieces(page: WebPage, client: redis.Redis) -> None:
    family = get_family("ferryman")
    large, small = b'"' + b"x" * (20 << 20) + b'"', b"[]"
    jobs = [
        Job(str(len(each)), "mail", "send", State.WAITING, priority=0, payload=each, created_at=NOW) for each in (large, small)
    ]
    store(client, family, family.default_prefix, jobs, NOW)
    listing = page.text("/jobs", queue="mail", state="waiting")
    assert "20.0 MB" in listing
    assert len(listing) < 20_000
    story = page.text("/job", queue="mail", id=str(len(large)))
    assert "20.0 MB: too much for a page" in story
    assert len(story) < 20_000
    assert page.get("/job/payload", queue="mail", id=str(len(large))).content == large
    assert page.get("/job/payload", queue="mail", id="2").content == small


@pytest.mark.parametrize("name", ["kue", "qless"])
def test_large_records_of_other_systems_are_left_out_as_well(page: WebPage, client: redis.Redis, name: str) -> None:
    family = get_family(name)
    jobs = list(family.generate(30, 1, NOW))
    store(client, family, family.default_prefix, jobs, NOW)
    (key,) = [each for each in client.scan_iter(count=1000) if client.type(each) == b"hash" and b"data" in client.hkeys(each)][:1]
    client.hset(key, "data", b'"' + b"x" * (5 << 20) + b'"')
    job = next(job for job in jobs if re.split("[:-]", key.decode(), maxsplit=2)[-1] == job.id)
    story = page.text("/job", family=name, prefix=family.default_prefix, queue=job.queue, id=job.id)
    assert "5.0 MB: too much for a page" in story


def test_the_history_of_a_queue_is_drawn_and_told_in_numbers(page: WebPage, server: Server) -> None:
    with Connection(server.url()) as connection:
        queue = connection.SimpleQueue("mail")
        for number in range(3):
            queue.put({"number": number})
        queue.get(timeout=5).ack()
        queue.close()
    text = page.text("/queue", queue="mail")
    for title in ("Depth", "Throughput, jobs a minute", "Waits", "Runs"):
        assert f"<strong>{title}</strong>" in text
    assert "of 1 job" in text
    assert text.count('<svg class="chart"') == 4
    assert page.text("/queue", queue="mail", span="14 days").count('<svg class="chart"') == 4
    assert page.get("/queue", queue="mail", span="a year").status_code == 400


def test_statistics_that_qless_has_kept_are_drawn_by_the_day(page: WebPage, client: redis.Redis) -> None:
    client.zadd("ql:queues", {"mail": 1})
    client.zadd("ql:q:mail-work", {"0" * 32: 1})
    day = int(client.time()[0]) // 86_400 * 86_400
    client.hset(f"ql:s:run:{day}:mail", mapping={"total": 41, "mean": 20.5, "vk": 1, "s20": 41})
    text = page.text("/queue", queue="mail", family="qless", prefix="ql")
    assert "Jobs a day" in text
    assert "of 41 jobs" in text
    assert "90 days" in text
    assert "Depth" not in text
    assert page.get("/queue", queue="mail", family="qless", prefix="ql", span="2 hours").status_code == 400
