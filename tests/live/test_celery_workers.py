"""Celery workers on other systems' keyspaces, with Celery's own settings: what becomes of each job, on each pool."""

from __future__ import annotations

import contextlib
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest
from attrs import evolve, field, frozen
from celery import Celery, chain, chord, group
from celery.exceptions import ChordError

from ..conftest import SERVERS
from ..support.live_systems import SYSTEMS, LiveSystem, side_keys
from ..support.topologies import wait_until
from ..support.workers import Ledger, Worker, wait_until_active, worker

APP = "tests.support.foreign_tasks"
(KUE,) = [system for system in SYSTEMS if system.family == "kue"]
POOLS = ["prefork", "threads", "solo"]


@pytest.fixture(scope="module")
def one_server(tmp_path_factory):
    with SERVERS[0].start(tmp_path_factory.mktemp("live")) as server:
        yield server


@pytest.fixture
def server(one_server):
    one_server.client().flushall()
    return one_server


@frozen
class Fleet:
    """Workers on one keyspace, and who puts jobs there."""

    system: LiveSystem
    server: Any
    folder: Any
    client: Any

    @property
    def ledger(self) -> Ledger:
        return Ledger(self.server)

    @contextlib.contextmanager
    def worker(self, queues: str = "story", **options: Any) -> Iterator[Worker]:
        """A worker of these queues."""
        broker = self.system.url(self.server, **options.pop("url", {}))
        with worker(self.server, self.folder, app=APP, broker=broker, queues=queues, **options) as running:
            yield running

    def put(self, do: str, queue: str = "story", attempts: int = 1, name: str | None = None, **more: Any) -> str:
        """Puts a job and gives its id; its name in the ledger is what it does, unless another is given."""
        return self.system.put(self.client, queue, {"name": name or do, "do": do, **more}, attempts)

    def state(self, job_id: str) -> str | None:
        """Where a job is, None for one that is gone."""
        job = self.system.jobs(self.server).get(job_id)
        return None if job is None else str(job.state)

    def wait_for(self, job_id: str, *states: str | None, seconds: float = 120) -> str | None:
        """The state of a job, once it is one of these."""
        wait_until(lambda: self.state(job_id) in states, seconds)
        return self.state(job_id)

    def wait_until_quiet(self, *queues: str, seconds: float = 120) -> None:
        """Returns when no job of these queues waits, is scheduled or runs.

        They are looked at one after the other, and again: a job may have put another into one that has been looked at already.
        """

        def quiet() -> bool:
            sizes = [self.client.size(queue) for queue in (*queues, *queues)]
            return not any(size.waiting or size.scheduled or size.held for size in sizes)

        wait_until(quiet, seconds)


@pytest.fixture
def fleet(server, tmp_path) -> Callable[[LiveSystem], Fleet]:
    return lambda system: Fleet(system, server, tmp_path, system.client(server))


@frozen(eq=False)
class Story:
    """A job, and what becomes of it."""

    do: str
    state: str
    text: str
    """What stands in its result, or in its error if it has failed."""
    name: str = ""
    queue: str = "story"
    attempts: int = 1
    runs: int = 1
    more: Mapping[str, Any] = field(factory=dict)
    only: str = ""
    """The only pool that can do this."""

    @property
    def is_for_systems_that_count(self) -> bool:
        """Whether it rests on a number of attempts that the system looks at."""
        return self.name in ("in vain", "by itself")


ENDS = [
    Story("return", "completed", '{"sent":1}', more={"value": {"sent": 1}}),
    Story("raise", "failed", "no customer in raise"),
    Story("raise", "failed", "no customer in raise twice", name="raise twice", attempts=2, runs=2),
    Story("retry", "completed", '"at last"', attempts=3, runs=3, more={"times": 2}),
    Story("retry", "failed", "not yet", name="in vain", attempts=2, runs=2, more={"times": 9}),
    Story("raise", "failed", "no customer in by itself", name="by itself", queue="auto", attempts=3, runs=3),
    Story("retry changed", "completed", '"changed"', attempts=2, runs=2),
    Story("requeue", "completed", '"taken again"', runs=2),
    Story("reject", "failed", "never", attempts=3),
    Story("ignore", "completed", ""),
    Story("progress", "completed", '"done"'),
    Story("return", "completed", "", name="replaced", queue="replaced"),
    Story("exit", "failed", "xit"),  # the words are the pool's
    Story("die", "failed", "SIGKILL", name="die for good", more={"always": True}, only="prefork"),
    Story("hang", "failed", "TimeLimitExceeded", queue="hasty", more={"seconds": 200}, only="prefork"),
    Story("sleep", "failed", "SoftTimeLimitExceeded", queue="soft", more={"seconds": 200}, only="prefork"),
]
EXHAUSTED = ("No more retries available", "Job exhausted retries in queue")
"""What bee and qless say of a job that is retried without an attempt left."""
SURVIVES = Story("die", "completed", '"survived"', attempts=2, runs=2, only="prefork")
QUEUES = ("story", "auto", "replaced", "hasty", "soft")


def tell(fleet: Fleet, stories: Iterable[Story], pool: str, **options: Any) -> None:
    """Has one worker run all these jobs, and looks what becomes of them."""
    told = [story for story in stories if story.only in ("", pool)]
    jobs = {story: fleet.put(story.do, story.queue, story.attempts, story.name or story.do, **story.more) for story in told}
    with fleet.worker(",".join(QUEUES), pool=pool, concurrency=4, **options) as running:
        fleet.wait_until_quiet(*QUEUES)
        assert running.stop() == 0
    log = running.log.read_text()
    found = fleet.system.jobs(fleet.server)
    starts = Counter(fleet.ledger.names("start"))
    for story in told:
        job, name = found.get(jobs[story]), story.name or story.do
        assert starts[name] == story.runs, (name, log)
        if job is None:
            continue  # not every system keeps what is over
        assert str(job.state) == story.state, (name, log)
        said = (job.result or b"").decode() if story.state == "completed" else job.error
        assert not said or any(words in said for words in (story.text, *EXHAUSTED)), (name, log)
    assert starts["replaced-other"] == 1
    assert fleet.system.findings(fleet.server) == []
    assert side_keys(fleet.server.client()) == set()
    assert "taken away" not in log


@pytest.mark.parametrize("pool", POOLS)
def test_every_end_of_a_task_is_that_of_its_job_on_every_pool(fleet, pool):
    kue = fleet(KUE)
    tell(kue, [*ENDS, SURVIVES], pool)
    completed = {job.result for job in kue.system.jobs(kue.server).values() if str(job.state) == "completed"}
    assert {b'{"sent":1}', b'"at last"', b'"changed"', b'"taken again"', b'"done"', b"7"} <= completed


@pytest.mark.parametrize("system", [system for system in SYSTEMS if system != KUE], ids=str)
def test_every_end_of_a_task_is_that_of_its_job_in_every_system(fleet, system):
    stories = [evolve(each, runs=1) if each.name == "raise twice" and not system.tries_again else each for each in ENDS]
    if not system.counts_attempts:
        stories = [story for story in stories if not story.is_for_systems_that_count]
    if system.family == "kickq":  # which tries a run that took too long once more, whatever its attempts, and half an hour later
        stories = [story for story in stories if "TimeLimit" not in story.text]
    tell(fleet(system), stories, "prefork")


@pytest.mark.parametrize("pool", ["prefork", "threads"])
def test_a_warm_shutdown_ends_what_runs_and_gives_back_the_rest(fleet, pool):
    kue = fleet(KUE)
    jobs = [kue.put("hold", name=str(n)) for n in range(3)]
    with kue.worker(pool=pool, concurrency=1, level="DEBUG") as leaving:
        kue.ledger.wait_for("start", 1)
        assert leaving.stop_with(kue.ledger) == 0
    assert [kue.state(job_id) for job_id in jobs] == ["completed", "waiting", "waiting"]
    assert kue.ledger.names("end") == ["0"]
    assert side_keys(kue.server.client()) == set()


def test_a_cold_shutdown_has_what_ran_wait_again(fleet):
    kue = fleet(KUE)
    job_id = kue.put("sleep", seconds=300)
    with kue.worker(concurrency=1) as leaving:
        kue.ledger.wait_for("start", 1)
        leaving.process.send_signal(signal.SIGQUIT)
        leaving.process.wait(120)
    assert kue.state(job_id) == "waiting"
    assert kue.system.findings(kue.server) == []
    assert side_keys(kue.server.client()) == set()


def test_a_cut_connection_neither_ends_nor_repeats_what_runs(fleet):
    kue = fleet(KUE)
    jobs = [kue.put("hold", name=str(n)) for n in range(2)]
    with kue.worker(concurrency=1) as cut:
        kue.ledger.wait_for("start", 1)
        wait_until_active(kue.system.url(kue.server), 1)
        with kue.server.client() as client:
            client.client_kill_filter(_type="normal", skipme=True)
        cut.wait_until_logged(b"Connected to", times=2)
        kue.ledger.let_go()
        for job_id in jobs:
            kue.wait_for(job_id, "completed")
        assert kue.ledger.names("start") == ["0", "1"], cut.log.read_text()
        assert cut.stop() == 0
    assert side_keys(kue.server.client()) == set()


def test_a_killed_worker_loses_no_job(fleet):
    kue = fleet(KUE)
    job_id = kue.put("hold")
    with kue.worker(concurrency=1, lease=2, name="doomed") as doomed:
        kue.ledger.wait_for("start", 1)
        doomed.kill()
    with kue.worker(concurrency=1, lease=30, name="heir") as heir:
        kue.ledger.wait_for("start", 2)
        kue.ledger.let_go()
        kue.wait_for(job_id, "completed")
        assert kue.ledger.names("start") == ["hold", "hold"]
        assert heir.stop() == 0
    assert side_keys(kue.server.client()) == set()


# Revoked, and lost


def lost(kue: Fleet, job_id: str) -> None:
    """Does what kue's own web page does with an active job that somebody deletes."""
    with kue.server.client() as client:
        member = next(each for each in client.zrange("q:jobs:active", 0, -1) if each.endswith(f"|{job_id}".encode()))
        for index in ("q:jobs", "q:jobs:active", "q:jobs:story:active"):
            client.zrem(index, member)
        client.delete(f"q:job:{job_id}", f"q:job:{job_id}:log")


def test_running_tasks_are_stopped_when_they_are_revoked_and_when_their_job_is_gone(fleet):
    kue = fleet(KUE)
    backend = f"redis://{kue.server.host}:{kue.server.port}/2"
    revoked, gone = (kue.put("sleep", name=name, seconds=300) for name in ("revoked", "gone"))
    app = Celery("revoking", broker=kue.system.url(kue.server), backend=backend, set_as_current=False)
    with app, kue.worker(backend=backend, lease=4) as running:
        kue.ledger.wait_for("start", 2)
        app.control.revoke(f"q:{revoked}", terminate=True)
        lost(kue, gone)
        assert kue.wait_for(revoked, "failed") == "failed"
        for job_id in (revoked, gone):
            wait_until(lambda: app.AsyncResult(f"q:{job_id}").state == "REVOKED")  # noqa: B023 - called at once
        after = [kue.put("return", name=str(n)) for n in range(4)]
        kue.wait_until_quiet("story")
        assert running.stop() == 0
    assert [kue.state(job_id) for job_id in after] == ["completed"] * 4
    assert kue.state(gone) is None
    assert "end" not in {line["event"] for line in kue.ledger.lines() if line["name"] in ("revoked", "gone")}
    assert kue.system.jobs(kue.server)[revoked].error == "terminated"
    assert kue.system.findings(kue.server) == []
    assert side_keys(kue.server.client()) == set()


def test_a_pool_of_threads_lets_a_lost_job_run_in_vain(fleet):
    kue = fleet(KUE)
    gone = kue.put("sleep", seconds=6)
    with kue.worker(pool="threads", lease=4, concurrency=1) as running:
        kue.ledger.wait_for("start", 1)
        lost(kue, gone)
        kue.ledger.wait_for("end", 1)
        after = kue.put("return")
        kue.wait_for(after, "completed")
        assert running.stop() == 0
    assert kue.state(gone) is None
    assert "taken away" in running.log.read_text()
    assert kue.system.findings(kue.server) == []
    assert side_keys(kue.server.client()) == set()


# Other ways to run


def test_processes_that_run_one_task_each_and_come_and_go(fleet):
    kue = fleet(KUE)
    jobs = [kue.put("return", name=str(n), value=n + 1) for n in range(12)]
    with kue.worker(options=("--max-tasks-per-child", "1", "--autoscale", "4,1")) as running:
        kue.wait_until_quiet("story")
        assert running.stop() == 0
    found = kue.system.jobs(kue.server)
    assert [found[job_id].result for job_id in jobs] == [b"%d" % (n + 1) for n in range(12)]
    assert len({line["pid"] for line in kue.ledger.lines()}) == 12


@pytest.mark.parametrize(
    "settings", [{"start_method": "spawn"}, {"late": 1, "pool": "threads"}], ids=["spawned processes", "late acks"]
)
def test_ends_are_the_same_with(fleet, settings):
    kue = fleet(KUE)
    jobs = {do: kue.put(do, attempts=2, **more) for do, more in (("retry", {}), ("reject", {}), ("requeue", {}))}
    with kue.worker(**settings) as running:
        kue.wait_until_quiet("story")
        assert running.stop() == 0
    states = {do: kue.state(job_id) for do, job_id in jobs.items()}
    assert states == {"retry": "completed", "reject": "failed", "requeue": "completed"}
    assert side_keys(kue.server.client()) == set()


@pytest.mark.parametrize("pool", ["gevent", "eventlet"])
def test_green_pools(fleet, pool):
    pytest.importorskip(pool)
    kue = fleet(KUE)
    revoked = kue.put("sleep", name="revoked", seconds=300)
    with kue.worker("story,auto,replaced", pool=pool, concurrency=4) as running:
        kue.ledger.wait_for("start", 1)
        with Celery("revoking", broker=kue.system.url(kue.server), set_as_current=False) as app:
            app.control.revoke(f"q:{revoked}", terminate=True)
        told = [story for story in ENDS if story.only == "" and story.do != "exit"]
        jobs = {story: kue.put(story.do, story.queue, story.attempts, story.name or story.do, **story.more) for story in told}
        kue.wait_until_quiet("story", "auto", "replaced")
        assert running.stop() == 0
    found = kue.system.jobs(kue.server)
    assert {story.name or story.do: str(found[job_id].state) for story, job_id in jobs.items()} == {
        story.name or story.do: story.state for story in told
    }
    assert str(found[revoked].state) == "failed"
    assert kue.system.findings(kue.server) == []
    assert side_keys(kue.server.client()) == set()


# Canvas


def test_chains_groups_chords_and_callbacks_run_on_another_systems_keyspace(fleet):
    kue = fleet(KUE)
    backend = f"redis://{kue.server.host}:{kue.server.port}/2"
    app = Celery("canvas", broker=kue.system.url(kue.server), backend=backend, set_as_current=False)
    app.conf.task_default_queue = "story"

    def sign(name: str, *args: Any, **options: Any) -> Any:
        return app.signature(name, args, **options)

    with app, kue.worker(backend=backend, concurrency=4) as running:
        chained = chain(sign("add", 1, 2), sign("add", 3), sign("add", 4), app=app)()
        grouped = group([sign("add", n, n) for n in range(3)], app=app)()
        summed = chord([sign("add", n, 1) for n in range(3)], app=app)(sign("total"))
        linked = sign("add", 5, 5).apply_async(link=sign("add", 100))
        failed = sign("broken", 1).apply_async(link_error=sign("note_error"))
        broken = chord([sign("add", 1, 1), sign("broken", 2)], app=app)(sign("total"))
        assert chained.get(timeout=120) == 10
        assert grouped.get(timeout=120) == [0, 2, 4]
        assert summed.get(timeout=120) == 6
        assert linked.get(timeout=120) == 10
        assert isinstance(failed.get(timeout=120, propagate=False), LookupError)
        assert isinstance(broken.get(timeout=120, propagate=False), ChordError)
        kue.ledger.wait_for("errback", 1)
        assert kue.ledger.names("errback") == [failed.id]
        kue.ledger.wait(lambda lines: any(line["name"] == [100, 10] or line["name"] == [10, 100] for line in lines))
        kue.wait_until_quiet("story")
        assert running.stop() == 0
    assert kue.system.findings(kue.server) == []
    assert side_keys(kue.server.client()) == set()
