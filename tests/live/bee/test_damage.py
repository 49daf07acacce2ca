"""Jobs at which bee's own scripts stop half way, or which they lose: with us they are in nobody's way."""

from __future__ import annotations

import json

import pytest
from ferryman.schema.live import ForeignDelivery

from .served import ANN, BOB, Keyspace, T

pytestmark = pytest.mark.in_turn


def test_damaged_jobs_are_in_nobodys_way(bee: Keyspace) -> None:
    damage: dict[str, dict[str, str | None]] = {
        "data": {"data": "no json"},
        "nan": {"data": "[1e999]"},
        "ghost": {"jid": None},
        "options": {"options": "no json"},
        "history": {"history": "no json"},
        "done": {"status": "completed"},
        "elsewhere": {"queue": "other"},
    }
    for number, (jid, fields) in enumerate(damage.items()):
        bee.put(jid, [jid], now=T + number)
        for name, value in fields.items():
            if value is None:
                bee.client.hdel(f"bee:h:jobs:{jid}", name)
            else:
                bee.client.hset(f"bee:h:jobs:{jid}", name, value)
    bee.client.zadd("bee:ss:queue:mail", {"missing": T, "typed": T})
    bee.client.set("bee:h:jobs:typed", "text")
    bee.put("fine", ["fine"], now=T + 100)
    assert bee.ids(n=9, now=T + 200) == ["fine"]
    assert {bee.field(jid, "status") for jid in ("data", "nan")} == {"failed"}
    assert bee.field("data", "failedReason") == "its data is not JSON that bee can read"
    left = set(bee.client.zrange("bee:ss:queue:mail", 0, -1))
    assert left == {b"options", b"history", b"elsewhere", b"typed"}
    assert not bee.client.exists("bee:h:jobs:missing")


def test_options_that_are_missing_are_bees_own(bee: Keyspace) -> None:
    bee.client.hset("bee:h:jobs:a", mapping={"jid": "a", "queue": "mail", "data": "[1]", "options": "{}", "status": "queued"})
    bee.client.zadd("bee:ss:queue:mail", {"a": T})
    (job,) = bee.take().jobs
    assert isinstance(job, ForeignDelivery)
    assert (job.attempts, job.max_attempts) == (0, 6)
    assert bee.send(bee.live.complete("mail", ANN, [("a", b"1")], now=T)) == ("completed",)
    assert bee.client.zscore("bee:ss:expires:mail", "a") == T + 1_800_000
    assert json.loads(bee.field("a", "options") or "") == {"ttl": 1_800_000, "retries": 5, "retryDelay": 30_000}


def test_what_stands_in_the_way_of_bees_clock_is_swept_aside(bee: Keyspace) -> None:
    for role in ("locks", "expires", "delayed"):
        bee.client.zadd(f"bee:ss:{role}:mail", {"missing": T, "typed": T + 1, "odd": T + 2})
    bee.client.set("bee:h:jobs:typed", "text")
    bee.client.hset("bee:h:jobs:odd", mapping={"jid": "odd", "queue": "mail", "status": "canceled"})
    bee.put("a", ttl=1000)
    bee.ids()
    bee.send(bee.live.complete("mail", ANN, [("a", b"1")], now=T))
    bee.take(n=0, now=T + 5000)
    assert bee.field("a", "status") == "expired"
    assert {bee.client.exists(f"bee:ss:{role}:mail") for role in ("locks", "expires", "delayed", "queue")} == {0}
    assert bee.field("odd", "status") == "canceled"


def test_a_counter_of_lapses_that_is_no_number_begins_anew(bee: Keyspace) -> None:
    bee.put("a")
    bee.ids()
    bee.client.set("bee:str:lock-waits:web-1:2:ann:mail:a", "x")
    for number in range(1, 4):
        bee.take(BOB, 0, now=T + number * 45_000)
        assert bee.client.get("bee:str:lock-waits:web-1:2:ann:mail:a") == b"%d" % number
    assert bee.ids(BOB, now=T + 180_000) == ["a"]


def test_a_list_of_equal_jobs_that_is_headed_by_a_dead_one_swallows_nobody(bee: Keyspace) -> None:
    bee.put("a", ["same"])
    bee.ids()
    bee.send(bee.live.complete("mail", ANN, [("a", None)], now=T))
    bee.client.hset("bee:h:jobs:a", "status", "canceled")
    bee.put("b", ["same"])
    assert bee.ids() == ["b"]
    assert bee.field("b", "hash") is None


def test_an_original_that_still_runs_outlives_its_cancelled_duplicate(bee: Keyspace) -> None:
    bee.put("a", ["same"])
    bee.put("b", ["same"])
    assert bee.ids(n=2) == ["a"]
    assert bee.field("b", "status") == "duplicate"
    bee.send(bee.live.cancel("b", now=T))
    assert bee.client.pttl("bee:h:jobs:a") == -1
    assert bee.client.pttl("bee:h:jobs:b") > 0
    assert bee.send(bee.live.complete("mail", ANN, [("a", None)], now=T)) == ("completed",)
