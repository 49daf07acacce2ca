"""``ferryman demo``: the whole product in one go, on real software: a server, Spark, Celery workers, a kill.

Two kue keyspaces are loaded: ``q``, captured after real crashes, with thousands of generated jobs beside, and ``shop``, a
captured healthy one. Both are audited and migrated; real Celery workers run the jobs of ``q``; one of them is killed half-way.
The end is a ledger in which every job of the sources must have its place.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import redis
from attrs import define, evolve, field, frozen

from ..compat.kue import FAMILY as KUE
from ..compat.kue.generate import generate
from ..compat.kue.samples import SAMPLES
from ..compat.samples import commands
from ..migrations.engine import Engine, Verification
from ..migrations.local import LocalEngine
from ..migrations.plan import Plan
from ..migrations.probes import clock_ms
from ..schema.connection.address import Address
from ..schema.connection.connect import open_client
from ..schema.errors import ServerError, UsageError
from ..schema.family import Target
from ..schema.job import Job, State
from ..schema.rule import Finding, Severity
from ..schema.text import plural
from ..schema.totals import Totals
from .demo_app import BROKER, LEDGER, PACE, PLAN
from .embedded import embedded_server
from .engines import get_engine
from .ledger import Event, Fate, JobKey, Ledger, account
from .output import Format, Output
from .status import Status

FIRST_ID = 1001
"""Generated jobs begin above the captured ones."""
WORKERS = ("ferry-1", "ferry-2")
SECONDS_WITHOUT_PROGRESS = 60.0
SLOW_SECONDS = 1.0
"""What a task takes while the kill is prepared."""
WORK_SECONDS = 24.0
"""What all tasks take together at other times, if that makes no more than LONGEST_PACE for one."""
LONGEST_PACE = 0.5
EXAMPLES = 12


@frozen
class Crossing:
    """One keyspace and where it goes."""

    title: str
    source: Address
    target: Address


@define
class Steps:
    """Prints each step with the time it took."""

    output: Output
    number: int = 0
    started: float = field(factory=time.monotonic)

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[Callable[[str], None]]:
        """A step; what the block says is printed under it, with the time."""
        self.number += 1
        said: list[str] = []
        begun = time.monotonic()
        yield said.append
        self.output.say(f"{self.number:>2}. {title:<66}{time.monotonic() - begun:>6.1f} s", "bold")
        for line in said:
            self.output.say(f"    {line}")


@click.command()
@click.option("--jobs", "number", type=click.IntRange(min=100), default=10_000, show_default=True, help="Generated jobs.")
@click.option(
    "--url", help="Use this server instead of an embedded one. Its database must be empty; what the demo made stays there."
)
@click.option("--seed", type=int, default=1, show_default=True, help="Other generated jobs.")
@click.option(
    "--engine",
    "engine_name",
    type=click.Choice(["spark", "local"]),
    default="spark",
    show_default=True,
    help="What audits and migrates. local: without Java and Spark.",
)
def command(number: int, url: str | None, seed: int, engine_name: str) -> Status:
    """Show everything at once, on a server of its own.

    Loads captured and generated kue keyspaces, audits and migrates them with Spark, lets real Celery workers run the jobs,
    kills one of them half-way, and accounts for every single job.
    """
    started = time.monotonic()
    steps = Steps(Output(Format.TABLE))
    with contextlib.ExitStack() as stack:
        with steps.step("Start a Valkey server" if url is None else "Look at the server") as say:
            address = stack.enter_context(embedded_server()) if url is None else Address.parse(url)
            client = stack.enter_context(open_client(address))
            keys = client.dbsize()
            if keys:
                held = f"{keys} {plural(keys, 'key')}"
                raise UsageError(f"{address.display()}: the database holds {held}; the demo needs an empty one")
            say(address.display())
        fine = Demo(steps, address, client, engine_name).run(number, seed)
    steps.output.say(f"{time.monotonic() - started:.0f} s in all.", "bold")
    return Status.FINE if fine else Status.FINDINGS


class Demo:
    """The acts of the demo, in their order."""

    def __init__(self, steps: Steps, address: Address, client: redis.Redis, engine_name: str) -> None:
        self.steps = steps
        self.address = address
        self.client = client
        self.engine_name = engine_name
        self.refused: dict[str, dict[str, str]] = {}

    def run(self, number: int, seed: int) -> bool:
        """Runs all acts; whether everything came out as it must."""
        crossings = (
            Crossing("q", evolve(self.address, family="kue", prefix="q"), self.address),
            Crossing("shop", evolve(self.address, family="kue", prefix="shop"), evolve(self.address, prefix="ferryman-shop")),
        )
        self.load(number, seed)
        with self.steps.step("Start Spark" if self.engine_name == "spark" else "Take the local engine"):
            engine = get_engine(self.engine_name)
            if self.engine_name == "spark":
                from ..spark.session import session

                session(brief=True)
        fine = True
        for crossing in crossings:
            fine &= self.audit(engine, crossing)
        for crossing in crossings:
            self.migrate(engine, crossing)
        for crossing in crossings:
            fine &= self.verify(engine, crossing)
        events = self.work(crossings)
        return self.settle(crossings, events) and fine

    def load(self, number: int, seed: int) -> None:
        """Puts both kue keyspaces into the server."""
        with self.steps.step(f"Load two captured kue keyspaces, generate {number:,} jobs") as say:
            loaded = 0
            for sample, prefix in (("crashed", "q"), ("healthy", "shop")):
                pipeline = self.client.pipeline(transaction=False)
                for entry in SAMPLES[sample].entries():
                    renamed = evolve(entry, key=prefix.encode() + entry.key[1:]) if entry.key.startswith(b"q:") else entry
                    for words in commands(renamed):
                        pipeline.execute_command(*words)
                    loaded += 1
                pipeline.execute()
            say(f"{loaded} keys as kue 0.11.6 left them: prefix q after real crashes, prefix shop in good health")
            target, written = Target("q", clock_ms(self.client)), Totals()
            pipeline = self.client.pipeline(transaction=False)
            for job in generate(number, seed, target.now_ms):
                moved = evolve(job, id=str(int(job.id) + FIRST_ID - 1))
                KUE.tally_written(moved, written)
                for words in KUE.write(moved, target):
                    pipeline.execute_command(*words)
                if len(pipeline) > 5000:
                    pipeline.execute()
            for words in KUE.finish(target, written):
                pipeline.execute_command(*words)
            pipeline.execute()
            say(f"{number:,} jobs beside the crashed ones, through kue's own key layout")

    def audit(self, engine: Engine, crossing: Crossing) -> bool:
        """Runs the rules, and compares with the faults that were injected."""
        with self.steps.step(f"Audit {crossing.source.display()}"[:66]) as say:
            findings: list[Finding] = []
            census = engine.audit(crossing.source, clock_ms(self.client), findings.append)
            errors = [finding for finding in findings if finding.severity is Severity.ERROR]
            rules = sorted({finding.rule for finding in findings}, key=lambda rule: int(rule.rpartition("-")[2]))
            say(f"{census.jobs:,} jobs, {len(findings)} findings, {len(errors)} errors; rules {', '.join(rules)}")
            if crossing.title != "q":
                return not errors
            expected = SAMPLES["crashed"].faults()
            found = {(finding.rule, finding.job_id) for finding in findings}
            missed = sorted(fault for fault in expected if fault not in found)
            say(f"{len(expected)} faults were injected, {len(expected) - len(missed)} of them found")
            for rule, job_id in missed:
                say(f"MISSED: {rule} on job {job_id}")
            return not missed

    def migrate(self, engine: Engine, crossing: Crossing) -> None:
        """Carries one keyspace over."""
        with self.steps.step(f"Migrate {crossing.title} to Celery") as say:
            refused = self.refused.setdefault(crossing.title, {})

            def report(finding: Finding) -> None:
                if finding.job_id is not None:
                    refused.setdefault(finding.job_id, finding.rule)

            plan = Plan.between(crossing.source, crossing.target, clock_ms(self.client))
            summary = engine.migrate(crossing.source, crossing.target, plan, report)
            still_refused = {job_id for ids in summary.refused.values() for job_id in ids}
            self.refused[crossing.title] = {job_id: rule for job_id, rule in refused.items() if job_id in still_refused}
            states = ", ".join(f"{count:,} {state}" for state, count in sorted(summary.by_state.items()))
            say(f"{summary.written:,} jobs written ({states}), {summary.skipped} refused")

    def verify(self, engine: Engine, crossing: Crossing) -> bool:
        """Compares both sides."""
        with self.steps.step(f"Verify {crossing.title}, job by job, field by field") as say:
            plan = Plan.between(crossing.source, crossing.target, clock_ms(self.client))
            outcome: Verification = engine.verify(crossing.source, crossing.target, plan, lambda _: None)
            say(f"{outcome.matched:,} jobs match, {outcome.differences} differences")
            return outcome.differences == 0

    def work(self, crossings: tuple[Crossing, ...]) -> list[Event]:
        """Runs the migrated jobs with real workers, and kills one of them."""
        main, shop = crossings
        with tempfile.TemporaryDirectory(prefix="ferryman-workers-") as folder, contextlib.ExitStack() as stack:
            with self.steps.step("Start two Celery workers on ferryman://, and one for the shop") as say:
                now_ms = clock_ms(self.client)
                coming = {crossing.title: _coming(crossing.target, now_ms) for crossing in crossings}
                due = {(job.queue, job.id) for jobs in coming.values() for job in jobs if _is_due(job, now_ms)}
                todo = len(due)
                # Few jobs must last until all workers have come to work.
                pace = min(LONGEST_PACE, WORK_SECONDS / todo)
                self.client.set(PACE, pace)
                first, second = (stack.enter_context(_worker(main.target, coming["q"], name, Path(folder))) for name in WORKERS)
                third = stack.enter_context(_worker(shop.target, coming["shop"], "ferry-3", Path(folder)))
                say(f"{todo:,} jobs wait for them")
            with self.steps.step(f"Run {todo:,} jobs; kill {WORKERS[0]} (SIGKILL) half-way") as say:
                self._wait(todo // 2, (first, second, third))
                # Tasks take longer for a moment, so that the kill hits some that are running.
                self.client.set(PACE, SLOW_SECONDS)
                self._wait_until_busy(WORKERS[0])
                os.killpg(first.pid, signal.SIGKILL)
                first.wait()
                self.client.set(PACE, pace)
                events = self._wait(todo, (second, third), due)
                begun = {event.job for event in events if event.worker.startswith(WORKERS[0]) and event.event == "start"}
                say(f"{WORKERS[0]} was killed after {len(begun):,} jobs; {WORKERS[1]} took over what it held")
                for worker in (second, third):
                    worker.send_signal(signal.SIGTERM)
                for worker in (second, third):
                    worker.wait(30)
        return self._events()

    def _wait(self, jobs: int, workers: tuple[subprocess.Popen[bytes], ...], which: set[JobKey] | None = None) -> list[Event]:
        """The events, when so many jobs (or just these) have ended. Raises ServerError when nothing moves any more."""
        seen, moved = -1, time.monotonic()
        while True:
            lines = int(self.client.llen(LEDGER))
            if lines != seen:
                seen, moved = lines, time.monotonic()
                events = self._events()
                ended = {event.job for event in events if event.event == "end"}
                if len(ended) >= jobs and (which is None or which <= ended):
                    return events
            if any(worker.poll() is not None for worker in workers):
                raise ServerError("a worker of the demo ended by itself")
            if time.monotonic() - moved > SECONDS_WITHOUT_PROGRESS:
                raise ServerError(f"the workers have done nothing for {SECONDS_WITHOUT_PROGRESS:.0f} s")
            time.sleep(0.1)

    def _wait_until_busy(self, worker: str) -> None:
        """Returns when the worker has begun a task at the slow pace and not ended it."""
        deadline = time.monotonic() + SECONDS_WITHOUT_PROGRESS
        while time.monotonic() < deadline:
            mine = [event for event in self._events() if event.worker.startswith(worker)]
            begun = {event.job for event in mine if event.event == "start"} - {
                event.job for event in mine if event.event == "end"
            }
            if begun:
                time.sleep(SLOW_SECONDS / 10)
                if begun - {event.job for event in self._events() if event.event == "end"}:
                    return
            time.sleep(0.05)
        raise ServerError(f"{worker} took no task for {SECONDS_WITHOUT_PROGRESS:.0f} s")

    def _events(self) -> list[Event]:
        rows = (json.loads(line) for line in self.client.lrange(LEDGER, 0, -1))
        return [Event(event, (queue, job_id), worker) for event, queue, job_id, worker in rows]

    def settle(self, crossings: tuple[Crossing, ...], events: list[Event]) -> bool:
        """Books every job and shows the ledger."""
        killed = next((event.worker for event in events if event.worker.startswith(WORKERS[0])), WORKERS[0])
        balanced = True
        for crossing in crossings:
            with self.steps.step(f"Account for every job of {crossing.title}"):
                now_ms = clock_ms(self.client)
                standing = {(job.queue, job.id): job.state for job in LocalEngine().jobs(crossing.target, now_ms)}
                mine = [event for event in events if event.worker.startswith("ferry-3") == (crossing.title == "shop")]
                source = LocalEngine().jobs(crossing.source, now_ms)
                ledger = account(source, self.refused[crossing.title], mine, standing, killed)
            self._show(ledger)
            balanced &= ledger.balanced
        return balanced

    def _show(self, ledger: Ledger) -> None:
        rows = []
        for fate in Fate:
            entry = ledger.entries.get(fate)
            if entry is not None:
                shown = entry.examples[:EXAMPLES] if fate in (Fate.RUN_AGAIN, Fate.REFUSED, Fate.UNACCOUNTED) else []
                more = ", …" if len(shown) < entry.count and shown else ""
                rows.append((str(fate), f"{entry.count:,}", ", ".join(shown) + more))
        rows.append(("all jobs of the source", f"{ledger.jobs:,}", ""))
        self.steps.output.table("", ("what became of them", "jobs", "which"), rows, right=("jobs",), fold=("which",))


def _coming(target: Address, now_ms: int) -> list[Job]:
    """The migrated jobs that a worker is for, now or later."""
    return [job for job in LocalEngine().jobs(target, now_ms) if job.state in (State.WAITING, State.SCHEDULED)]


def _is_due(job: Job, now_ms: int) -> bool:
    return job.state is State.WAITING or (job.due_at is not None and job.due_at <= now_ms)


@contextlib.contextmanager
def _worker(target: Address, jobs: list[Job], name: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A Celery worker for these jobs, ready to work; killed at the end of the block if it still runs."""
    plan = {"queues": sorted({job.queue for job in jobs}), "tasks": sorted({job.name for job in jobs})}
    # One of them is killed, and can't delete its temporary files.
    environment = {**os.environ, BROKER: target.url(), PLAN: json.dumps(plan), "TMPDIR": str(folder)}
    words = ["-m", "celery", "-A", "ferryman.cli.demo_app", "worker", "-P", "prefork", "-c", "2", "-n", f"{name}@demo"]
    with (folder / name).open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", *words, "-l", "WARNING"],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
