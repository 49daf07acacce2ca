"""Every end of a job, key by key: what it changes, and that it changes nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import field, frozen
from ferryman.schema.live import Failure

from ...support.dumps import changes, dump, findings
from .keyspace import LEASE, NOW, ROOT, World, at

pytestmark = pytest.mark.in_turn

LATER = NOW + 40


@frozen
class End:
    """An end of job 1, which ann has taken at NOW, at LATER."""

    call: Callable[[World], Any]
    outcome: Any
    fields: dict[str, str | None]
    """What differs in the record."""
    job: dict[str, Any] = field(factory=dict)
    """What the job has beside the usual."""
    state: str | None = "complete"
    score: float | None = None
    others: dict[str, Any] = field(factory=dict)


def completed(result: bytes | None = None) -> Callable[[World], Any]:
    return lambda world: world.live.complete("mail", "ann", [("1", result)], now=LATER)


def failed(**options: Any) -> Callable[[World], Any]:
    return lambda world: world.live.fail("mail", "ann", "1", Failure("no", "E: no\nat x", **options), now=LATER)


def retried(delay: int) -> Callable[[World], Any]:
    return lambda world: world.live.retry("mail", "ann", "1", delay, failure=Failure("no", "E: no\nat x"), now=LATER)


DONE: dict[str, str | None] = {"duration": "40", "progress": "100", "attempts": "1"}
FAILED: dict[str, str | None] = {"error": "E: no\nat x", "failed_at": str(LATER), "attempts": "1"}
LOG = {"q:job:1:log": ["E: no"]}
WORK = {"q:stats:work-time": "40"}
TOKEN = {"q:mail:jobs": ["1"]}
BACKOFF = '{"type":"exponential","delay":100}'

ENDS: dict[str, End] = {
    "completed": End(completed(), ("completed",), DONE, others=WORK),
    "completed with a result": End(completed(b'{"a":1}'), ("completed",), {**DONE, "result": '{"a":1}'}, others=WORK),
    "completed with a result that kue does not keep": End(completed(b"0.0"), ("completed",), DONE, others=WORK),
    "completed with an empty list": End(completed(b"[]"), ("completed",), {**DONE, "result": "[]"}, others=WORK),
    "completed, attempts never counted": End(
        completed(), ("completed",), {**DONE, "attempts": None}, {"max_attempts": None}, others=WORK
    ),
    "completed at its last attempt": End(
        completed(), ("completed",), {**DONE, "attempts": "3"}, {"max_attempts": "3", "attempts": "3"}, others=WORK
    ),
    "removed": End(
        completed(b"1"), ("removed",), {}, {"removeOnComplete": "false"}, None, others={**WORK, "q:job:1": None, "q:jobs": None}
    ),
    "failed for good": End(failed(), "failed", FAILED, state="failed", others=LOG),
    "failed, attempts left": End(
        failed(), "waiting", FAILED, {"max_attempts": "2"}, state="inactive", others={**LOG, **TOKEN}
    ),
    "failed with an unreadable backoff": End(
        failed(), "scheduled", {**FAILED, "promote_at": str(NOW - 1000)}, {"max_attempts": "2", "backoff": "function (n) { x }"},
        state="delayed", score=NOW - 1000.0, others=LOG,
    ),
    "failed with a backoff of its own delay": End(
        failed(), "scheduled", {**FAILED, "delay": "30", "promote_at": str(LATER + 30)},
        {"max_attempts": "2", "backoff": "true", "delay": "30"}, state="delayed", score=LATER + 30.0, others=LOG,
    ),
    "failed with a fixed backoff": End(
        failed(), "scheduled", {**FAILED, "delay": "70", "promote_at": str(LATER + 70)},
        {"max_attempts": "2", "backoff": '{"type":"fixed","delay":70}', "delay": "5"},
        state="delayed", score=LATER + 70.0, others=LOG,
    ),
    "failed with an exponential backoff": End(
        failed(), "scheduled", {**FAILED, "attempts": "3", "delay": "350", "promote_at": str(LATER + 350)},
        {"max_attempts": "4", "attempts": "2", "backoff": BACKOFF}, state="delayed", score=LATER + 350.0, others=LOG,
    ),
    "failed, and no attempt may follow": End(
        failed(is_final=True), "failed", {**FAILED, "attempts": "4"}, {"max_attempts": "4"}, state="failed", others=LOG
    ),
    "retried at once": End(
        retried(0), "waiting", FAILED, {"max_attempts": "2", "backoff": "true"}, state="inactive", others={**LOG, **TOKEN}
    ),
    "retried later": End(
        retried(900), "scheduled", {**FAILED, "delay": "900", "promote_at": str(LATER + 900)}, {"max_attempts": "2"},
        state="delayed", score=LATER + 900.0, others=LOG,
    ),
    "retried without an attempt left": End(retried(900), "failed", FAILED, state="failed", others=LOG),
    "put back": End(
        lambda world: world.live.requeue("mail", "ann", ["1"], now=LATER), (True,), {}, state="inactive", others=TOKEN
    ),
    "released": End(lambda world: world.live.release("mail", "ann", None, now=LATER), 1, {}, state="inactive", others=TOKEN),
    "released by name": End(
        lambda world: world.live.release("mail", "ann", ["1", "2"], now=LATER), 1, {}, state="inactive", others=TOKEN
    ),
    "forgotten": End(
        lambda world: world.live.forget("mail", "ann", now=LATER), 1, {}, state="inactive",
        others={**TOKEN, ROOT + "consumers:mail": None, ROOT + "queues": None},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_an_end_of_a_job_changes_what_kue_would_change(world: World, name: str) -> None:
    end = ENDS[name]
    world.taken(1, priority="-3", **end.job)
    before = dump(world.client)
    assert world.send(end.call(world)) == end.outcome
    expected: dict[str, Any] = {"q:jobs:active": None, "q:jobs:mail:active": None, ROOT + "held:mail": None}
    if end.state:
        expected["q:job:1"] = at(before["q:job:1"], state=end.state, updated_at=str(LATER), **end.fields)
        expected[f"q:jobs:{end.state}"] = {"01|1": -3.0 if end.score is None else end.score}
        expected[f"q:jobs:mail:{end.state}"] = {"01|1": -3.0}
    assert changes(before, dump(world.client)) == {**expected, **end.others}
    if "removeOnComplete" not in end.job and "backoff" not in end.job:
        world.send(world.live.forget("mail", "ann"))
        assert {finding.rule for finding in findings(world.client, "kue", "q", LATER)} <= {"KUE-21", "KUE-23"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda world: world.send(world.live.requeue("mail", "ann", ["1"], now=NOW)), "given back"),
        (lambda world: world.client.hset("q:job:1", "state", "inactive"), "put back by kue"),
        (lambda world: world.client.hset("q:job:1", "workerId", "kue:host:1:mail:1"), "taken by kue"),
        (lambda world: world.client.delete("q:job:1"), "removed by kue"),
        (lambda world: world.take(now=NOW + LEASE + 1, consumer="bob"), "lapsed, and taken by another"),
    ],
)
def test_a_job_that_is_not_its_consumers_any_more_is_left_as_it_is(
    world: World, change: Callable[[World], Any], why: str
) -> None:
    world.taken(1, max_attempts="3")
    change(world)
    before = {key: value for key, value in dump(world.client).items() if key.startswith("q:")}
    assert world.send(world.live.held("mail", "ann")) == ()
    assert world.send(completed(b"1")(world)) == ("lost",), why
    assert world.send(failed()(world)) == "lost"
    assert world.send(retried(5)(world)) == "lost"
    assert world.send(world.live.progress("mail", "ann", "1", 1, 2, now=LATER)) is False
    assert world.send(world.live.requeue("mail", "ann", ["1"], now=LATER)) == (False,)
    assert world.send(world.live.reject("mail", "ann", "1", "rejected", now=LATER)) is False
    assert world.send(world.live.ack("mail", "ann", ["1"], now=LATER)) == ("lost",)
    assert {key: value for key, value in dump(world.client).items() if key.startswith("q:")} == before


@pytest.mark.parametrize(
    ("current", "total", "data", "fields"),
    [
        (1, 3, None, {"progress": "33"}),
        (9, 3, b'{"a":1}', {"progress": "100", "progress_data": '{"a":1}'}),
        (1, 0, b"0", {"progress": "0"}),
    ],
)
def test_progress_is_noted_as_kue_notes_it(world: World, current: float, total: float, data: bytes | None, fields: Any) -> None:
    world.taken(1, ttl="500")
    before = dump(world.client)
    assert world.send(world.live.progress("mail", "ann", "1", current, total, data, now=LATER))
    assert changes(before, dump(world.client)) == {
        "q:job:1": at(before["q:job:1"], updated_at=str(LATER), **fields),
        "q:jobs:active": {"01|1": LATER + 500.0},
    }


def test_progress_after_the_ttl_does_not_begin_it_anew(world: World) -> None:
    world.taken(1, ttl="500")
    world.send(world.live.progress("mail", "ann", "1", 1, 2, now=NOW + 501))
    assert dump(world.client)["q:jobs:active"] == {"01|1": NOW + 500.0}
