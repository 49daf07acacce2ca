"""The transitions of qless: what each leaves behind."""

from __future__ import annotations

import pytest
import redis
from ferryman.compat.qless.live import QlessLive
from ferryman.schema.connection.call import run
from ferryman.schema.errors import UsageError
from ferryman.schema.live import Failure, NewJob

NOW = 1_795_000_000_125
LEASE = 30_000
LIVE = QlessLive()


def test_a_job_is_put_taken_and_completed(client: redis.Redis) -> None:
    made = run(client, LIVE.put(NewJob("mail", b'{"to": 1}', "shop.Send", id="j1", publication="p-1"), now=NOW))
    assert run(client, LIVE.put(NewJob("mail", b'{"to": 1}', "shop.Send", id="j1", publication="p-1"), now=NOW)) == made == "j1"
    taken = run(client, LIVE.take("mail", "w", 1, LEASE, now=NOW + 5_000))
    (job,) = taken.jobs
    assert (job.id, job.name, job.payload, job.attempts, job.max_attempts) == ("j1", "shop.Send", b'{"to": 1}', 0, 6)
    assert run(client, LIVE.held("mail", "w")) == ("j1",)
    assert run(client, LIVE.complete("mail", "w", [("j1", b"1"), ("j2", None)], now=NOW + 6_000)) == ("completed", "lost")
    assert client.zrange("ql:completed", 0, -1) == [b"j1"]
    assert run(client, LIVE.forget("mail", "w")) == 0
    assert client.keys("ferryman:*") == [b"ferryman:live:qless:{ql}:publisher:p"]


def test_a_task_that_raises_has_failed_for_good_under_its_queue_and_exception(client: redis.Redis) -> None:
    run(client, LIVE.put(NewJob("mail", b"1", "shop.Send", id="j1"), now=NOW))
    run(client, LIVE.take("mail", "w", 1, LEASE, now=NOW))
    failure = Failure("boom", "Traceback\nboom", "ValueError")
    assert run(client, LIVE.fail("mail", "w", "j1", failure, now=NOW)) == "failed"
    assert client.lrange("ql:f:mail-ValueError", 0, -1) == [b"j1"]
    assert run(client, LIVE.fail("mail", "w", "j1", failure, now=NOW)) == "lost"


def test_only_known_tasks_are_taken_and_others_stay_where_they_are(client: redis.Redis) -> None:
    for name in ("theirs", "ours", "theirs"):
        run(client, LIVE.put(NewJob("mail", b"1", name), now=NOW))
    run(client, LIVE.put(NewJob("mail", b"1", "envelope", extra=b'{"task": "ours"}'), now=NOW))
    taken = run(client, LIVE.take("mail", "w", 10, LEASE, tasks=["ours"], now=NOW))
    assert sorted(job.name or "" for job in taken.jobs) == ["envelope", "ours"]
    assert client.zcard("ql:q:mail-work") == 2


def test_data_that_is_false_is_refused_before_the_first_write() -> None:
    with pytest.raises(UsageError, match="false"):
        LIVE.put(NewJob("mail", b"false"))
