"""What generated kickq jobs are like, beside what holds in every family."""

from __future__ import annotations

import redis
from ferryman.compat.kickq import FAMILY
from ferryman.compat.kickq.generate import QUEUES, STATES
from ferryman.testing.keyspaces import dump, read_keyspace, store

from ...support.families import assert_in_shares
from .keyspaces import NOW


def test_all_queues_and_states_occur_in_about_their_shares(client: redis.Redis) -> None:
    jobs = list(FAMILY.generate(3000, 1, NOW))
    assert_in_shares((job.queue for job in jobs), QUEUES)
    assert [job.id for job in jobs] == [str(number) for number in range(1, 3001)]
    sizes = sorted(len(job.payload or b"") for job in jobs)
    assert 100 < sizes[1500] < 500
    assert sizes[-1] > 4000
    store(client, FAMILY, "kickq", jobs, NOW)
    assert all(abs(client.scard(f"kickq:state:{word}") / 30 - share) < 4 for word, share in STATES)


def test_generated_keyspaces_are_of_the_newest_version_and_nothing_overflows_in_them(client: redis.Redis) -> None:
    store(client, FAMILY, "kickq", FAMILY.generate(500, 4, NOW), NOW)
    assert FAMILY.version(read_keyspace(FAMILY, dump(client).values(), "kickq", NOW).keyspace) == "1.0 to 1.1"
    assert client.hexists("kickq:job:1", "ferryman") is False
