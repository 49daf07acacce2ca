"""How long each page of ``ferryman ui`` takes: of a keyspace with many jobs, and of one with 100,000 queues.

    python -m benchmarks.webpage [--jobs 1000000] [--queues 100000]

Each page is asked for several times by HTTP, and the median and the slowest are shown; the first request of all, which opens
connections, is left out. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import click
from ferryman.cli.main import main as ferryman
from ferryman.operations.broker import open_broker
from ferryman.schema.connection.address import Address
from ferryman.schema.native import keys
from ferryman.schema.native.scripts.publication import Publication

from tests.support.webpage import WebPage, web_page

from .server import Server

REPEATS = 7
CHUNK = 1000

PAGES = {
    "overview": "/",
    "queues": "/queues",
    "queue": "/queue?queue=celery",
    "jobs, waiting": "/jobs?queue=celery&state=waiting",
    "jobs, failed": "/jobs?queue=celery&state=failed",
    "jobs, page 2": "/jobs?queue=celery&state=waiting&after=0-50",
    "jobs, by task": "/jobs?queue=celery&state=waiting&task=proj.tasks.add",
    "jobs, by a text that none has": "/jobs?queue=celery&state=waiting&text=nowhere",
    "job": "",
    "dead letters": "/dead",
    "consumers": "/consumers",
    "all that match, counted": "/bulk?queue=celery&state=failed&task=proj.tasks.add",
    "migrations": "/migrations",
}


@click.command()
@click.option("--jobs", default=1_000_000, show_default=True)
@click.option("--queues", default=100_000, show_default=True)
def command(jobs: int, queues: int) -> None:
    """Measures and prints two tables."""
    with Server() as server:
        url = f"ferryman://127.0.0.1:{server.port}/0"
        ferryman(["generate", url, "--jobs", str(jobs)], standalone_mode=False)
        ferryman(["generate", f"{url}?family=kue", "--jobs", str(jobs // 10)], standalone_mode=False)
        with web_page(url, may_write=True) as page:
            listing = page.text("/jobs", queue="celery", state="waiting")
            job = listing.split('href="/job?')[1].split('"')[0].replace("&amp;", "&")
            pages = PAGES | {"job": f"/job?{job}", "kue: jobs": "/jobs?family=kue&prefix=q&queue=email&state=waiting"}
            click.echo(f"\n{jobs:,} jobs of ferryman's own, {jobs // 10:,} of kue")
            for name, path in pages.items():
                _show(name, page, path)
        with server.client() as client:
            client.flushall()
        _declare(Address.parse(url), queues)
        with web_page(url, may_write=True) as page:
            page.text("/queues")
            click.echo(f"\n{queues:,} queues")
            for name, path in (
                ("queues by name", "/queues"),
                ("the last page", f"/queues?page={queues // 100}"),
                ("a part of the name", "/queues?text=queue-099"),
                ("by what waits", "/queues?order=waiting"),
                ("consumers", "/consumers"),
                ("overview", "/"),
            ):
                _show(name, page, path)


def _show(name: str, page: WebPage, path: str) -> None:
    times = list(_times(page, path))
    click.echo(f"{name:32} median {statistics.median(times):6.0f} ms, slowest {max(times):6.0f} ms")


def _times(page: WebPage, path: str) -> Iterator[float]:
    for _ in range(REPEATS):
        began = time.perf_counter()
        assert page.http.get(path).status_code == 200
        yield (time.perf_counter() - began) * 1000


def _declare(address: Address, number: int) -> None:
    """So many queues, each with a job or two."""
    names = [f"queue-{at:06d}" for at in range(number)]
    with open_broker(address) as broker:
        for first in range(0, number, CHUNK):
            some = names[first : first + CHUNK]
            message = b'{"headers":{"task":"t"}}\n[[],{},{}]'
            broker.link.run_all(
                [
                    broker.scripts.publish(
                        name, "p", [Publication(f"p-{at}", message) for at in range(1 + len(name) % 2)], create=True
                    )
                    for name in some
                ]
            )
            broker.link.command("SADD", keys.queues(address.prefix), *some)


if __name__ == "__main__":
    command()
