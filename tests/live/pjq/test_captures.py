"""Keyspaces that the original programs left, served by us: the same order, the same traces, no new finding."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
import redis
from ferryman.compat.pjq.client import PjqClient
from ferryman.compat.pjq.keys import JS_1, layout
from ferryman.schema.connection.call import run as send
from ferryman.schema.errors import KeyspaceRefused
from ferryman.schema.fact import Entry
from ferryman.schema.live import Failure

from ...support.captures import Capture, capture, captures, load
from ...support.dumps import findings
from ...support.foreign_keys import seen, side_keys

pytestmark = pytest.mark.in_turn

SERVED = [case for case in captures("pjq") if case.name not in ("crashed", "older-version")]
each_served = pytest.mark.parametrize("case", SERVED, ids=str)

RUN = ("dispatched_at", "started_at", "finished_at", "exitcode", "stdout", "stderr")
"""Members of a job that say how it went."""


def of_today(case: Capture) -> list[Entry]:
    """Without the keys of JavaScript programs, beside which no Python program can be served."""
    names, only = layout(""), {*JS_1, *(["idle"] if case.name == "crashed" else [])}
    roles = ((each, next(names.matches(each.key)).role) for each in case.entries())
    return [each for each, role in roles if role not in only or (role == "idle" and each.redis_type == "set")]


def served(client: redis.Redis, case: Capture) -> PjqClient:
    load(of_today(case), client)
    return PjqClient(client, consumer="ours")


def drained(pjq: PjqClient, queue: str, now: int) -> list[str]:
    """The ids of a queue's jobs in the order in which one consumer gets and finishes them."""
    found: list[str] = []
    for _ in range(200):
        taken = pjq.take(queue, now=now)
        if not taken:
            return found
        found.append(taken[0].id)
        assert pjq.complete(taken[0], now=now) == "completed"
    raise AssertionError(f"queue {queue!r} never ends")


@each_served
def test_jobs_run_in_the_order_in_which_the_program_gave_them_out(client: redis.Redis, case: Capture) -> None:
    pjq = served(client, case)
    over = {fault["id"] for fault in case.expected.get("damage", ()) if fault["rule"] == "PJQ-10"}
    for queue, order in (case.expected.get("pop_order") or {}).items():
        ours = drained(pjq, queue, case.captured_at_ms)
        assert [each for each in ours if each not in over] == order
        assert ours[len(ours) - len(order) :] == order


def test_leases_that_the_first_python_program_never_took_back_are_over(client: redis.Redis) -> None:
    case = capture("pjq", "older-version-py1")
    pjq = served(client, case)
    over = {fault["id"] for fault in case.expected["damage"] if fault["rule"] == "PJQ-10"}
    ours = [each for queue in case.expected["pop_order"] for each in drained(pjq, queue, case.captured_at_ms)]
    assert over
    assert over < set(ours)


@pytest.mark.parametrize("case", [each for each in SERVED if "pop_order_after_lease_expiry" in each.expected], ids=str)
def test_what_was_dispatched_and_never_accepted_runs_first_when_its_lease_is_over(client: redis.Redis, case: Capture) -> None:
    pjq = served(client, case)
    expected = case.expected["pop_order_after_lease_expiry"]
    assert {queue: drained(pjq, queue, case.captured_at_ms + 9_500) for queue in expected} == expected


def test_a_damaged_keyspace_is_drained_of_all_that_can_be_run(client: redis.Redis) -> None:
    case = capture("pjq", "crashed")
    pjq = served(client, case)
    now = case.captured_at_ms + 9_500
    ours = {queue: drained(pjq, queue, now) for queue in case.expected["pop_order"]}
    dead = case.expected["kills_the_program_at_dispatch"]
    for queue, order in case.expected["pop_order"].items():
        if isinstance(dead.get(queue), str):
            assert ours[queue], "the program dies at each of its messages"
        else:
            assert ours[queue] == order
    for queue, ids in dead.items():
        if isinstance(ids, list):
            assert set(ids) <= {each.decode() for each in client.lrange(f"jobs_queued:{queue}", 0, -1)}


def test_the_first_program_and_a_mixture_with_it_are_refused(client: redis.Redis) -> None:
    for name in ("older-version", "crashed"):
        client.flushdb()
        case = capture("pjq", name)
        load(case, client)
        before = seen(client)
        with pytest.raises(KeyspaceRefused, match="first JavaScript program"):
            PjqClient(client).take("ffmpeg")
        assert seen(client) == before


@pytest.mark.parametrize("name", ["healthy", "as-released", "custom-namespace", "older-version-py1"])
def test_an_audit_finds_nothing_that_it_did_not_find_before_we_served(client: redis.Redis, name: str) -> None:
    case = capture("pjq", name)
    pjq = served(client, case)
    now = case.captured_at_ms

    def found() -> set[tuple[str, str | None]]:
        return {(each.rule, each.job_id) for each in findings(client, "pjq", "", now)}

    before = found()
    for queue in case.expected["pop_order"]:
        taken = pjq.take(queue, 4, now=now)
        assert found() <= before
        if len(taken) == 4:
            pjq.complete(taken[0], 1, now=now)
            pjq.fail(taken[1], "failed", now=now)
            pjq.retry(taken[2], now=now)
            pjq.retry(taken[3], 60_000, now=now)
        pjq.put(queue, {"n": 1}, extra={"task": "t"}, now=now)
        assert found() <= before
        pjq.take(queue, 2, now=now)
    pjq.close(now=now)
    assert found() <= before


# The same story


def bare(stored: dict[bytes, bytes]) -> dict[str, Any]:
    """A job as its producer sent it."""
    members = json.loads(stored[b"json"])
    return {name: value for name, value in members.items() if name not in RUN}


TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$|\d{10}(\.\d+)?$")


def told(keyspace: dict[bytes, Any], ids: Iterable[bytes]) -> dict[bytes, Any]:
    """What stands of some jobs in a keyspace, without what the clock and the names of workers say."""
    wanted = set(ids)
    found: dict[bytes, Any] = {}
    for key, value in keyspace.items():
        if key in wanted:
            fields = {name: b"time" if TIME.match(text) else text for name, text in value.items()}
            if b"worker_uuid" in fields:
                fields[b"worker_uuid"] = b"worker"
            members = json.loads(fields[b"json"])
            fields[b"json"] = {
                name: "time" if name.endswith("ed_at") and name != "created_at" else each for name, each in members.items()
            }
            fields[b"order"] = list(members)
            found[key] = fields
        elif isinstance(value, tuple):
            found[key] = tuple(each for each in value if each in wanted)
        elif isinstance(value, dict) and key.startswith(b"jobs_"):
            found[key] = {each for each in value if each in wanted}
    return {key: value for key, value in found.items() if value}


def test_the_story_of_the_healthy_keyspace_told_by_us_leaves_the_same(client: redis.Redis) -> None:
    case = capture("pjq", "healthy")
    load(case, client)
    original = seen(client)
    states: dict[str, dict[str, list[bytes]]] = {}
    # What was accepted and not finished has no place in our story: ours are accepted when they end.
    for key, value in original.items():
        name, _, queue = key.decode().partition(":")
        if name in ("jobs_finished", "jobs_dispatched"):
            whole = [each for each in value if name == "jobs_dispatched" or b'"stdout"' in original[each][b"json"]]
            states.setdefault(queue, {})[name] = sorted(whole, key=value.__getitem__)
        elif name == "jobs_queued":
            again = [each for each in reversed(value) if b"dispatched_at" not in original[each]]
            states.setdefault(queue, {})[name] = again
    ids = [each for by_name in states.values() for some in by_name.values() for each in some]
    expected = told(original, ids)

    client.flushdb()
    pjq = PjqClient(client, consumer="ours")
    now = case.captured_at_ms - 5_000
    for queue, by_name in states.items():
        finished, dispatched = by_name.get("jobs_finished", []), by_name.get("jobs_dispatched", [])
        for job_id in [*finished, *dispatched, *by_name.get("jobs_queued", [])]:
            pjq.put(queue, bare(original[job_id]), job_id=job_id.decode(), now=now)
        for job_id in [*finished, *dispatched]:
            (taken,) = pjq.take(queue, now=now)
            assert taken.id == job_id.decode()
            now += 1
        for job_id in finished:
            told_by_worker = json.loads(original[job_id][b"json"])
            stdout, stderr = told_by_worker["stdout"].encode(), told_by_worker["stderr"]
            if told_by_worker["exitcode"]:
                call: Any = pjq.live.fail(queue, "ours", job_id.decode(), Failure("x", stderr), now=now)
            else:
                call = pjq.live.complete(queue, "ours", [(job_id.decode(), stdout)], now=now)
            assert send(client, call) in ("failed", ("completed",))
    ours = told(seen(client), ids)
    # pjq keeps what a worker printed of a failed run too; a task that has raised has printed nothing.
    for stored in [*expected.values(), *ours.values()]:
        if isinstance(stored, dict) and stored[b"json"].get("exitcode"):
            stored[b"json"].pop("stdout")
    for stored in expected.values():
        # Producers that leave out the time get it from us.
        if isinstance(stored, dict) and "created_at" not in stored[b"json"]:
            stored[b"json"]["created_at"] = "ours"
    for key, stored in ours.items():
        if isinstance(stored, dict) and expected[key][b"json"].get("created_at") == "ours":
            stored[b"json"]["created_at"] = "ours"
            expected[key].pop(b"order")
            stored.pop(b"order")
    assert ours == expected
    pjq.run_timers(now=now + 20_000)
    assert [key for key in side_keys(client) if b":queues" not in key] == []
