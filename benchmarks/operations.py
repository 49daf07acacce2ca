"""What operators wait for at a large keyspace: whole commands from start to exit, with what they cost the server.

    python -m benchmarks.operations --jobs 1000000
    python -m benchmarks.operations --only bulk --family kue --family qless

For each family whose indexes tell: the numbers of all queues, the first jobs, a page from the other end of a queue, one job by
its id, and a look of ``top``, with the commands that the server ran for it. Then actions on all that match, and how long another
client waits meanwhile; with ``--family`` of other systems, what each of them can do.

Exit status 1 when a target is missed. Starts its own server on a free port and stops it. Run from the repository, with the extra
``dev`` installed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import click
import redis
from attrs import frozen
from ferryman.migrations.generate import KeyspaceSpec, generate_keyspace
from ferryman.operations.steering import Bulk, Controls, open_steering
from ferryman.schema.connection.address import DEFAULT_FAMILY, Address
from ferryman.schema.connection.call import Call, run
from ferryman.schema.family import get_family
from ferryman.schema.job import State
from ferryman.schema.live import Failure, ForeignFamily, NewJob
from ferryman.schema.native import codec
from ferryman.schema.native.keys import DEFAULT_PREFIX
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts
from ferryman.schema.steering import Action, JobFilter, Value

from tests.support.servers import installed_servers

FAMILIES = ("ferryman", "kue")
FOREIGN = ("kue", "qless", "bee", "kickq", "pjq", "kombu")
QUEUES_SECONDS, JOBS_SECONDS, ID_SECONDS = 1.0, 0.5, 0.5
PROGRAM = (sys.executable, "-m", "ferryman.cli")

BULK_SECONDS, BULK_P99_MS = 5.0, 5.0


@frozen
class Row:
    """One command at one keyspace."""

    family: str
    words: tuple[str, ...]
    limit: float
    """Seconds that it may take."""


@click.command()
@click.option("--jobs", default=1_000_000, show_default=True)
@click.option("--bulk", default=100_000, show_default=True, help="Jobs of each action on all that match.")
@click.option("--repeat", default=3, show_default=True, help="How often each command runs; the median counts.")
@click.option("--only", type=click.Choice(["reads", "bulk"]), help="Only these.")
@click.option(
    "--family",
    "families",
    type=click.Choice([DEFAULT_FAMILY, *FOREIGN]),
    multiple=True,
    help="Only these systems; may come twice.",
)
def main(jobs: int, bulk: int, repeat: int, only: str | None, families: tuple[str, ...]) -> None:
    """Measures each command on each family."""
    missed = False
    with tempfile.TemporaryDirectory() as folder, installed_servers()[-1].start(Path(folder)) as server:
        client = server.client()
        for family in [each for each in FAMILIES if each in (families or FAMILIES)] if only != "bulk" else ():
            client.flushall()
            url = server.url(family=family)
            generate_keyspace(Address.parse(url), KeyspaceSpec(jobs, 1, round(time.time() * 1000)))
            click.echo(f"\n{client.dbsize():,} keys, {jobs:,} jobs of {family}")
            queue = _largest_queue(url)
            for row in _rows(family, queue, _waiting_job(url, queue)):
                commands, seconds = _measure(client, (*row.words[:1], url, *row.words[1:]), repeat)
                met = "yes" if seconds <= row.limit else "NO"
                missed |= met == "NO"
                click.echo(f"{' '.join(row.words):64} {seconds:6.2f} s ≤ {row.limit} {met:3} {commands:7,} commands")
        for family in families or (DEFAULT_FAMILY,) if only != "reads" else ():
            if family == DEFAULT_FAMILY:
                missed |= _bulk(client, server.url(), bulk)
            else:
                missed |= _foreign_bulk(client, Address.parse(server.url(family=family)), bulk)
    sys.exit(missed)


def _bulk(client: redis.Redis, url: str, jobs: int) -> bool:
    """Actions on all that match, one after the other on the same jobs. Whether one missed a target."""
    click.echo(f"\n{jobs:,} jobs by a filter; GET of another client meanwhile")
    client.flushall()
    missed = False
    with open_steering(Address.parse(url)) as steering:
        _publish(client, jobs)
        click.echo(f"{'nothing':44} {_watched(client, lambda: time.sleep(2.0))}")
        for action, state, chosen, value in _actions():
            if action is Action.PROMOTE:
                steering.drain(QUEUE)
                _publish(client, jobs, due_ms=2**42)
            if action is Action.REQUEUE:
                _bury(client)
            missed |= _act(client, steering, action, state, chosen, value)
    return missed


def _foreign_bulk(client: redis.Redis, address: Address, jobs: int) -> bool:
    """What another system can do to all that match, each time to new jobs. Whether it missed a target."""
    click.echo(f"\n{jobs:,} jobs of {address.family} by a filter; GET of another client meanwhile")
    missed = False
    family = get_family(address.family)
    live = family.live(address.prefix, DEFAULT_PREFIX)
    assert live is not None
    payload = MESSAGE if live.carries_messages else b'{"to":"ann@example.org"}'
    with open_steering(address) as steering:
        for action, state, value in FOREIGN_ACTIONS:
            if state not in steering.states(action):
                continue
            client.flushall()
            delay_ms = 3_600_000 if state is State.SCHEDULED else 0
            job = NewJob(QUEUE, payload, "Mail" if live.has_names else None, delay_ms=delay_ms)
            _send(client, (live.put(job) for _ in range(jobs)))
            if state is State.FAILED:
                _fail(client, live)
            chosen = JobFilter() if live.carries_messages else JobFilter(text=b"example.org")
            missed |= _act(client, steering, action, state, chosen, value, jobs)
    return missed


def _act(
    client: redis.Redis, steering: Controls, action: Action, state: State, chosen: JobFilter, value: Value, jobs: int = 0
) -> bool:
    """One action on all that match. Whether it missed a target; ``jobs``: to how many it must be done."""
    done: list[Bulk] = []
    found = _watched(client, lambda: done.append(steering.act_on_matching(action, QUEUE, state, chosen, value)))
    assert done[0].done >= jobs, done
    met = found.seconds <= BULK_SECONDS and found.p99 <= BULK_P99_MS
    click.echo(f"{f'{action} {state}: {_words(chosen)}':44} {found} {'yes' if met else 'NO'}")
    return not met


MESSAGE = (
    b'{"body":"e30=","content-encoding":"utf-8","content-type":"application/json","headers":{},'
    b'"properties":{"body_encoding":"base64"}}'
)
"""As kombu has them; it gives each an id of its own."""

FOREIGN_ACTIONS: tuple[tuple[Action, State, Value], ...] = (
    (Action.PROMOTE, State.SCHEDULED, None),
    (Action.REPRIORITISE, State.WAITING, 5),
    (Action.EDIT, State.WAITING, b'{"to":"bob@example.org"}'),
    (Action.REQUEUE, State.FAILED, None),
    (Action.MOVE, State.WAITING, "bulk"),
    (Action.CANCEL, State.WAITING, None),
    (Action.DELETE, State.WAITING, None),
)


def _send(client: redis.Redis, calls: Iterable[Call[Any]]) -> None:
    """Many calls, 1,000 in one round trip."""
    rest = iter(calls)
    while some := list(islice(rest, 1000)):
        with client.pipeline(transaction=False) as pipeline:
            pipeline.execute_command(*some[0].eval())
            for call in some[1:]:
                pipeline.execute_command(*call.words)
            pipeline.execute()


def _fail(client: redis.Redis, live: ForeignFamily) -> None:
    """Takes all jobs, and gives each up."""
    while jobs := run(client, live.take(QUEUE, "bench", 1000, 3_600_000)).jobs:
        _send(client, (live.fail(QUEUE, "bench", job.id, Failure("Timeout: no answer", is_final=True)) for job in jobs))


QUEUE, OTHER = "mail", "bulk"
SCRIPTS = QueueScripts()


def _actions() -> tuple[tuple[Action, State, JobFilter, Value], ...]:
    by_task = JobFilter(task="shop.send")
    return (
        (Action.DELETE, State.WAITING, JobFilter(text=b"nowhere"), None),
        (Action.REPRIORITISE, State.WAITING, by_task, 7),
        (Action.PROMOTE, State.SCHEDULED, by_task, None),
        (Action.EDIT, State.WAITING, by_task, b'[["bob@example.org"],{},{}]'),
        (Action.REQUEUE, State.FAILED, JobFilter(reason="Timeout"), None),
        (Action.MOVE, State.WAITING, by_task, OTHER),
        (Action.PROMOTE, State.SCHEDULED, JobFilter(text=b"example.org"), None),
        (Action.CANCEL, State.WAITING, JobFilter(text=b"example.org"), None),
    )


def _words(chosen: JobFilter) -> str:
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in chosen.to_dict().items())


def _publish(client: redis.Redis, jobs: int, due_ms: int | None = None) -> None:
    for queue in (QUEUE, OTHER):
        run(client, SCRIPTS.declare(queue, {}))
    for first in range(0, jobs, 1000):
        batch = [Publication(f"{first + n}", _message(first + n), n % 3, due_ms) for n in range(1000)]
        run(client, SCRIPTS.publish(QUEUE, "bench", batch))


def _message(number: int) -> bytes:
    """As Celery makes them."""
    task = f"0b1c6f0e-51d5-4d9a-9be1-{number:012d}"
    headers = {
        "lang": "py",
        "task": "shop.send",
        "id": task,
        "root_id": task,
        "parent_id": None,
        "group": None,
        "retries": 0,
        "eta": "2100-01-01T00:00:00+00:00",
        "expires": None,
        "timelimit": [None, None],
        "argsrepr": "('ann@example.org',)",
        "kwargsrepr": "{}",
        "origin": "gen1@host",
        "ignore_result": False,
        "replaced_task_nesting": 0,
        "stamps": {},
    }
    properties = {
        "correlation_id": task,
        "reply_to": task,
        "delivery_mode": 2,
        "priority": 0,
        "delivery_tag": task,
        "delivery_info": {"exchange": "", "routing_key": QUEUE},
    }
    head = {"content-type": "application/json", "content-encoding": "utf-8", "headers": headers, "properties": properties}
    options = b'{"callbacks":null,"errbacks":null,"chain":null,"chord":null}'
    return codec.encode(head, b'[["ann@example.org", %d], {}, %s]' % (number, options))


def _bury(client: redis.Redis) -> None:
    while jobs := run(client, SCRIPTS.take(QUEUE, "bench", 1000, 3_600_000)).jobs:
        with client.pipeline(transaction=False) as pipeline:
            for job in jobs:
                pipeline.execute_command(*SCRIPTS.reject(QUEUE, "bench", job.id, "rejected", "Timeout: no answer").eval())
            pipeline.execute()


@frozen
class Watched:
    """What an action has cost."""

    seconds: float
    waits: list[float]
    """The ms for which another process waited for each of its replies meanwhile, in order."""
    commands: int
    cpu: float
    """Seconds for which the server has worked."""

    @property
    def p99(self) -> float:
        """The ms that 99 of 100 of those were below."""
        return self.waits[int(len(self.waits) * 0.99)]

    def __str__(self) -> str:
        meanwhile = f"p50 {self.waits[len(self.waits) // 2]:.2f}, p99 {self.p99:.2f}, longest {self.waits[-1]:.1f} ms"
        return f"{self.seconds:6.2f} s {self.commands:9,} commands {self.cpu:5.2f} s of CPU   {meanwhile}"


def _cpu(client: redis.Redis) -> float:
    info = client.info("cpu")
    return float(info["used_cpu_sys"]) + float(info["used_cpu_user"])


def _watched(client: redis.Redis, act: Callable[[], object]) -> Watched:
    at = client.connection_pool.connection_kwargs
    with subprocess.Popen(
        [sys.executable, "-c", PROBE, str(at["port"])], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as probe:
        assert probe.stdin is not None
        assert probe.stdout is not None
        probe.stdout.readline()
        client.config_resetstat()
        cpu = _cpu(client)
        started = time.perf_counter()
        act()
        seconds = time.perf_counter() - started
        cpu = _cpu(client) - cpu
        calls = {name: stats["calls"] for name, stats in client.info("commandstats").items()}
        probe.stdin.close()
        waits = json.loads(probe.stdout.read())
    return Watched(seconds, waits, sum(calls.values()) - calls.get("cmdstat_get", 0), cpu)


PROBE = """
import json, select, sys, time, redis
client = redis.Redis(port=int(sys.argv[1]))
waits = []
client.get("x")
print(flush=True)
while not select.select([sys.stdin], [], [], 0.0005)[0]:
    started = time.perf_counter()
    client.get("x")
    waits.append((time.perf_counter() - started) * 1000)
print(json.dumps(sorted(waits)))
"""
"""Another client: asks some 1,000 times a second."""


def _rows(family: str, queue: str, job_id: str) -> tuple[Row, ...]:
    page = ("jobs", "--queue", queue, "--state", "waiting", "--limit", "50")
    return (
        Row(family, ("queues",), QUEUES_SECONDS),
        Row(family, ("jobs", "--limit", "50"), JOBS_SECONDS),
        Row(family, page, JOBS_SECONDS),
        Row(family, (*page, "--newest"), JOBS_SECONDS),
        Row(family, (*page, "--after", "0-100000"), JOBS_SECONDS),
        Row(family, ("jobs", "--id", job_id), ID_SECONDS),
        Row(family, ("top", "--count", "1"), QUEUES_SECONDS),
    )


def _waiting_job(url: str, queue: str) -> str:
    """The id of a job in the middle of what waits in a queue."""
    words = ("jobs", url, "--queue", queue, "--state", "waiting", "--limit", "1", "--after", "0-1000", "--format", "json")
    return str(json.loads(subprocess.run([*PROGRAM, *words], check=True, capture_output=True, text=True).stdout)["id"])


def _largest_queue(url: str) -> str:
    lines = subprocess.run([*PROGRAM, "queues", url, "--format", "json"], check=True, capture_output=True, text=True).stdout
    return str(max(map(json.loads, lines.splitlines()), key=lambda status: status["waiting"])["queue"])


def _measure(client: redis.Redis, words: tuple[str, ...], repeat: int) -> tuple[int, float]:
    """Commands of one run, those that scripts call included, and the median of the seconds."""
    times = []
    for _ in range(repeat):
        client.config_resetstat()
        started = time.perf_counter()
        subprocess.run([*PROGRAM, *words], check=True, capture_output=True)
        times.append(time.perf_counter() - started)
    return sum(stats["calls"] for stats in client.info("commandstats").values()), sorted(times)[len(times) // 2]


if __name__ == "__main__":
    main()
