"""What generated native queues are like, beside what holds in every family."""

from __future__ import annotations

import redis
from ferryman.schema.job import State
from ferryman.schema.native import FAMILY
from ferryman.schema.native.generate import QUEUES, STATES, generate
from ferryman.testing.keyspaces import store

from ...support.families import assert_in_shares

NOW = 1_800_000_000_000


def test_all_queues_and_states_occur_in_about_their_shares() -> None:
    jobs = list(generate(5000, 1, NOW))
    assert_in_shares((job.queue for job in jobs), QUEUES, within=3)
    assert_in_shares((job.state for job in jobs), STATES, within=3)


def test_jobs_run_by_priority_and_in_the_order_of_their_making(client: redis.Redis) -> None:
    jobs = list(generate(500, 4, NOW))
    store(client, FAMILY, "ferryman", jobs, NOW)
    for queue, _ in QUEUES:
        waiting = [job for job in jobs if job.queue == queue and job.state is State.WAITING]
        ids = [job.id.encode() for job in sorted(waiting, key=lambda job: job.priority or 0)]
        tag = queue.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")
        assert client.zrange(f"ferryman:{{{tag}}}:waiting", 0, -1) == ids
