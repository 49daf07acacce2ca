"""kue 0.9.6 and 0.6.2, whose keys differ, beside ferryman: jobs go both ways, and failures, delays and counts are as theirs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from ferryman.compat.kue.client import KueClient
from ferryman.schema.job import State

from ...support.dumps import dump, findings
from ...support.servers import Server
from .driver import Kue
from .waits import awaited, heard, take

VERSIONS = ("0.9.6", "0.6.2")
NOW = 4_000_000_000_000


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def kue(server: Server, version: str) -> Iterator[Kue]:
    with Kue.start(server, version) as process:
        yield process


@pytest.fixture
def ours(client: redis.Redis, kue: Kue) -> Iterator[KueClient]:
    """Its keyspace has a job, which says whose it is."""
    kue.call("create", type="first", data={})
    with KueClient(client) as consumer:
        yield consumer


def test_jobs_go_both_ways(kue: Kue, ours: KueClient, client: redis.Redis, version: str) -> None:
    theirs = kue.call("create", type="theirs", data={"n": 1}, options={"priority": "high"})
    job = take(ours, "theirs")
    assert (job.id, job.payload, job.priority) == (str(theirs), b'{"n":1}', -10)
    assert ours.progress(job, 1, 2)
    assert ours.complete(job, {"r": 1}) == "completed"
    mine = ours.put("mine", {"do": "ok", "result": {"r": 1}, "progress": [[1, 2]]}, priority=-10)
    kue.call("process", type="mine")
    kue.begun(int(mine))
    awaited(lambda: client.hget(f"q:job:{mine}", "duration") and client.hget(f"q:job:{mine}", "state") == b"complete")
    if version == "0.9.6":
        awaited(lambda: client.hget(f"q:job:{mine}", "attempts"))
    one, other = (dump(client)[f"q:job:{number}"] for number in (theirs, mine))
    assert one.keys() == other.keys()
    assert ours.peek("theirs", 9, State.COMPLETED)[0].id == str(theirs)
    assert kue.call("counts")["complete"] == 2


def test_failures_are_counted_together(kue: Kue, ours: KueClient, client: redis.Redis) -> None:
    number = kue.call("create", type="mail", data={"do": "fail"}, options={"attempts": 3})
    assert ours.fail(take(ours, "mail"), "first") == "waiting"
    kue.call("process", type="mail")
    awaited(lambda: client.hmget(f"q:job:{number}", "attempts", "state") == [b"3", b"failed"])
    log = [line.decode() for line in client.lrange(f"q:job:{number}:log", 0, -1)]
    assert log == ["first", "Error: it failed", "Error: it failed"]
    mine = ours.put("late", {"do": "fail"}, attempts=2)
    assert ours.fail(take(ours, "late"), "one") == "waiting"
    assert ours.fail(take(ours, "late"), "two") == "failed"
    ended = [dump(client)[f"q:job:{each}"] for each in (number, mine)]
    assert ended[0].keys() == ended[1].keys()


def test_delayed_jobs_are_promoted_by_either(kue: Kue, ours: KueClient, version: str) -> None:
    mine = ours.put("mine", {"do": "ok"}, delay_ms=150)
    if version == "0.6.2":
        kue.call("promote")
    kue.call("process", type="mine")
    kue.begun(int(mine))
    theirs = kue.call("create", type="theirs", data={}, options={"delay": 3_600_000})
    kue.kill()
    assert ours.take("theirs") == ()
    assert take(ours, "theirs", now=NOW).id == str(theirs)


def test_each_event_of_ours_is_one_that_they_would_send(kue: Kue, ours: KueClient, client: redis.Redis, version: str) -> None:
    with client.pubsub() as listener:
        listener.subscribe("q:events")
        for number, at_kue in ((2, True), (3, False)):
            heard(client, listener)
            kue.call("create", type=f"at {number}", data={"do": "ok", "progress": [[1, 2]]})
            if at_kue:
                kue.call("process", type=f"at {number}")
                kue.begun(number)
                awaited(lambda: client.hget("q:job:2", "state") == b"complete" and client.hget("q:job:2", "duration"))
                if version == "0.9.6":
                    awaited(lambda: client.hget("q:job:2", "attempts"))
                sent = heard(client, listener, are_all=lambda events: any(b'"complete"' in event for event in events))
                theirs = [event for event in sent if b'"first"' not in event]  # that tells the version
            else:
                job = take(ours, f"at {number}")
                ours.progress(job, 1, 2)
                ours.complete(job)
                mine = heard(client, listener)
    assert [
        event.replace(b"at 3", b"at 2").replace(b'"id":"3"', b'"id":"2"').replace(b'"id":3', b'"id":2') for event in mine
    ] == theirs


def test_nothing_is_left_over(kue: Kue, ours: KueClient, client: redis.Redis) -> None:
    kue.call("process", type="mail")
    for n in range(20):
        if n % 2:
            ours.put("mail", {"do": "ok"})
        else:
            kue.call("create", type="mail", data={"do": "ok"})
    done = 0
    while sum(client.zcard(f"q:jobs:{state}") for state in ("complete", "failed")) < 20:
        for job in ours.take("mail"):
            ours.complete(job)
            done += 1
    kue.call("counts")
    awaited(lambda: not client.exists("q:mail:jobs") or ours.take("mail"))
    ours.complete(take(ours, "first"))
    ours.take("first")
    ours.close()
    awaited(lambda: not client.exists("q:mail:jobs"))
    assert list(client.scan_iter("ferryman:*")) == []
    assert {finding.rule for finding in findings(client, "kue", "q", NOW)} <= {"KUE-23"}
