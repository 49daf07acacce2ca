"""Screenshots of every page of ``ferryman ui``, light, dark and narrow, into ``docs/ui/``: from two hours of made-up traffic.

    python -m benchmarks.screenshots [FOLDER]

Needs Chromium and its driver. The traffic is made by the scripts of the broker at moments of the past, so it is the same each
time but for the clock.
"""

from __future__ import annotations

import io
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import redis
from ferryman.cli.ui.settings import Role
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.operations.broker import Broker, open_broker
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.call import run
from ferryman.schema.family import get_family
from ferryman.schema.job import State
from ferryman.schema.native import codec, keys
from ferryman.schema.native.scripts.publication import Publication
from ferryman.testing.keyspaces import store
from PIL import Image
from selenium.webdriver import Chrome

from tests.support.browser import browser, look
from tests.support.webpage import WebPage, web_page

from .server import Server

FOLDER = Path(__file__).parents[1] / "docs" / "ui"
MINUTES = 120
COLOURS = 160
"""Of a picture: a page has few, and a small file is read sooner."""

QUEUES = {
    "mail": (9, 0.97, ("shop.mail.receipt", "shop.mail.newsletter", "shop.mail.reset_password")),
    "video": (3, 0.86, ("media.video.transcode", "media.video.thumbnail")),
    "reports": (2, 0.99, ("reports.daily.build", "reports.export.csv")),
    "webhooks": (6, 0.93, ("hooks.deliver",)),
    "search": (4, 1.0, ("search.index", "search.drop")),
}
"""Queue -> jobs a minute, the share of them that workers manage, the tasks."""

WORKERS = (
    ("web-01-4121", "emails", 2),
    ("web-01-4122", "emails", 3),
    ("web-02-3977", "image: resize", 1),
    ("batch-02-77", "reports-work", 4),
    ("web-02-3978", "slow lane", 1),
)
"""Workers of qless, the queue from which each takes, and how many jobs."""

ERRORS = (
    ("rejected", "ConnectionRefusedError: [Errno 111] smtp.example.com:587 refused the connection"),
    ("delivery_limit", "delivered 20 times without an ack"),
    ("rejected", "TimeoutError: no answer from https://hooks.example.com/orders within 30 s"),
    ("expired", "expired before any consumer took it"),
)

LOOKS = (("", 1180, 760, False), ("-dark", 1180, 760, True), ("-narrow", 320, 640, False))
"""Suffix, width, height, whether the system prefers dark."""

PAGES = {
    "overview": "",
    "queues": "queues",
    "queue": "queue?queue=mail",
    "jobs": "jobs?queue=mail&state=waiting",
    "dead": "dead",
    "consumers": "consumers",
    "workers": "consumers?family=qless&prefix=ql",
    "audit": "audit?family=kue&prefix=q",
    "migrations": "migrations",
    "publish": "enqueue?queue=mail",
    "log": "log",
}


def main() -> None:
    """Makes all of them."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    with Server() as server, tempfile.TemporaryDirectory() as scratch:
        url = f"ferryman://127.0.0.1:{server.port}/0"
        dead = _fill(Address.parse(url))
        settings: dict[str, Any] = {"may_write": True, "audit_log": Path(scratch) / "actions.jsonl"}
        with web_page(url, **settings) as page, browser(Path(scratch) / "profile") as driver:
            _act(page)
            pages = PAGES | {"job": f"job?queue=mail&id={dead}", "all-that-match": "bulk?queue=mail&state=failed"}
            for name, path in pages.items():
                for suffix, width, height, is_dark in LOOKS:
                    look(driver, width, height, dark=is_dark)
                    _save(driver, page.url + path, folder / f"{name}{suffix}.png", width)
        with web_page(url, tokens={Role.READER: "a-token-that-is-long"}) as page, browser(Path(scratch) / "other") as driver:
            look(driver, 1180, 420)
            _save(driver, page.url + "login", folder / "login.png", 1180)


def _save(driver: Chrome, url: str, path: Path, width: int) -> None:
    driver.get(url)
    deadline = time.monotonic() + 20
    while driver.find_elements("css selector", "body[data-again]:not([data-again=''])") and time.monotonic() < deadline:
        time.sleep(0.3)
        driver.get(url)
    if "data-live" in (driver.page_source or "")[:4000]:
        while not driver.find_elements("css selector", ".dot.on") and time.monotonic() < deadline:
            time.sleep(0.1)
        time.sleep(1.3)  # until changed numbers have faded
    picture = Image.open(io.BytesIO(driver.get_screenshot_as_png())).convert("RGB")
    picture.quantize(COLOURS, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(path, optimize=True)
    print(path, path.stat().st_size, f"{width} px")


def _fill(address: Address) -> str:
    """Two hours of traffic; gives the id of a dead letter."""
    random.seed(4)
    now_ms = int(time.time() * 1000)
    with open_broker(address) as broker:
        for queue in QUEUES:
            broker.link.run(broker.scripts.declare(queue, {}, now=now_ms - MINUTES * 60_000))
            broker.link.command("SADD", keys.queues(address.prefix), queue)
        numbers: dict[str, int] = dict.fromkeys(QUEUES, 0)
        for minute in range(-MINUTES, 0):
            for queue in QUEUES:
                _minute(broker, queue, now_ms, minute, numbers)
        for queue in QUEUES:
            _today(broker, queue, now_ms, numbers)
        dead = broker.link.run(broker.scripts.dead_letters("mail", limit=200))
    _others(address)
    return str(dead[-1].job.id)


def _minute(broker: Broker, queue: str, now_ms: int, minute: int, numbers: dict[str, int]) -> None:
    """What one queue did in one minute of the past."""
    rate, share, tasks = QUEUES[queue]
    at = now_ms + minute * 60_000
    wave = 1 + 0.6 * math.sin((minute + 20 * len(queue)) / 14) + random.random() * 0.5
    messages = list(_messages(queue, tasks, round(rate * wave), numbers))
    if messages:
        broker.link.run(broker.scripts.publish(queue, f"{queue}-producer", messages, now=at))
    wanted = max(0, round(rate * share * (1 + 0.5 * math.sin((minute + 24 * len(queue)) / 14))))
    consumer = f"worker-{1 + minute % 3}:{2100 + minute % 3}:{minute % 3:012x}"
    wait = random.randint(400, 9_000)
    taken = broker.link.run(broker.scripts.take(queue, consumer, max(1, wanted), 30_000, now=at + wait))
    for job in taken.jobs:
        run = int(random.lognormvariate(6.5, 1.1))
        if random.random() < 0.05:
            reason, error = random.choice(ERRORS)
            broker.link.run(broker.scripts.reject(queue, consumer, job.id, reason, error, now=at + wait + run))
        else:
            broker.link.run(broker.scripts.ack(queue, consumer, [job.id], now=at + wait + min(run, 25_000)))


def _today(broker: Broker, queue: str, now_ms: int, numbers: dict[str, int]) -> None:
    """What is there now: some jobs are scheduled, some are held."""
    tasks = QUEUES[queue][2]
    later = [
        message._replace(due_ms=now_ms + random.randint(60_000, 7_200_000)) for message in _messages(queue, tasks, 7, numbers)
    ]
    urgent = [message._replace(priority=9) for message in _messages(queue, tasks, 3, numbers)]
    broker.link.run(broker.scripts.publish(queue, f"{queue}-producer", [*later, *urgent]))
    for worker in range(1, 4):
        broker.link.run(broker.scripts.take(queue, f"worker-{worker}:{2100 + worker}:{worker:012x}", 2, 600_000))


def _messages(queue: str, tasks: tuple[str, ...], number: int, numbers: dict[str, int]) -> Iterator[Publication]:
    for _ in range(number):
        numbers[queue] += 1
        task_id = str(UUID(int=random.getrandbits(128), version=4))
        order = 48_000 + numbers[queue]
        kwargs = {"order": order, "to": f"customer{order % 977}@example.com", "locale": random.choice(["en", "de", "fr"])}
        head = {
            "content-type": "application/json",
            "content-encoding": "utf-8",
            "headers": {"lang": "py", "task": random.choice(tasks), "id": task_id, "retries": 0, "origin": "web-2@shop"},
            "properties": {"correlation_id": task_id, "delivery_info": {"exchange": "", "routing_key": queue}},
        }
        body = json.dumps([[order], kwargs, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]).encode()
        yield Publication(f"{queue}-{numbers[queue]}", codec.encode(head, body))


def _others(address: Address) -> None:
    """The keyspaces of other systems, one with a broken rule, and a migration."""
    now_ms = int(time.time() * 1000)
    for name, number in (("kue", 900), ("qless", 400), ("bee", 250)):
        family = get_family(name)
        own = Address.parse(f"{address.display()}?family={name}")
        with redis.Redis(host="127.0.0.1", port=address.hosts[0][1]) as client:
            jobs = [job for job in family.generate(number, 7, now_ms) if name != "qless" or job.state is not State.ACTIVE]
            store(client, family, own.prefix, jobs, now_ms)
            if name == "kue":
                client.zadd("q:jobs:email:inactive", {"04|4711": 0})
            if name == "qless":
                _work(client, own, now_ms)
    source, target = Address.parse(f"{address.display()}?family=kue"), Address.parse(f"{address.display()}?prefix=shop")
    LocalEngine().migrate(source, target, Plan.between(source, target, now_ms), lambda _finding: None)


def _work(client: redis.Redis, address: Address, now_ms: int) -> None:
    """Workers of qless take some jobs. One was not heard of for a while, and its locks are over."""
    live = address.key_family.live(address.prefix, keys.DEFAULT_PREFIX)
    assert live is not None
    for number, (worker, queue, jobs) in enumerate(WORKERS):
        silent_ms = 94_000 if number == 3 else random.randint(200, 9_000)
        run(client, live.take(queue, worker, jobs, 60_000, now=now_ms - silent_ms))


def _act(page: WebPage) -> None:
    """A few lines for the log."""
    page.send("/queue/act", {"action": "pause"}, {"queue": "reports"})
    page.send("/job/act", {"action": "requeue"}, {"queue": "webhooks", "id": "webhooks-12"})
    chosen: dict[str, str | bytes] = {"queue": "video", "state": str(State.FAILED), "reason": "delivery_limit"}
    page.send("/bulk", {"action": "requeue", "sure": "yes"}, chosen)
    page.send("/enqueue", {"task": "search.index", "args": "[48110]", "kwargs": "{}"}, {"queue": "search"})
    page.send("/audit/start", {}, {"family": "kue", "prefix": "q"})
    page.scanned(("audit", "kue", "q"))


if __name__ == "__main__":
    main()
