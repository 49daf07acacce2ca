"""Operators and kickq's own schedulers at the same job: what a scheduler has in its memory is not deleted under its hands."""

from __future__ import annotations

import pytest
import redis
from ferryman.compat.kickq.client import KickqClient
from ferryman.compat.kickq.steering import KickqSteering
from ferryman.schema.steering import Action

from ...models.kickq_original import OriginalKickq, Scheduler, perform

NOW = 1_800_000_000_000
EARLY, LATE = 1_000, 1_501
"""ms before and after a job is due."""


@pytest.fixture
def kickq(client: redis.Redis) -> KickqClient:
    return KickqClient(client)


@pytest.fixture
def job_id(client: redis.Redis) -> str:
    return perform(client, OriginalKickq().create("mail", 1, NOW - EARLY, delay=EARLY))


@pytest.fixture
def scheduler(client: redis.Redis, job_id: str) -> Scheduler:
    """One that has taken the job out of the schedule, a second before it is due."""
    scheduler = Scheduler(OriginalKickq())
    perform(client, scheduler.look(NOW - EARLY))
    assert [job.id for _, _, job in scheduler.taken] == [job_id]
    return scheduler


def steer(kickq: KickqClient, action: Action, job_id: str, now: int) -> str:
    return str(kickq.send(KickqSteering(kickq.live).act(action, "mail", job_id, now=now)))


@pytest.mark.parametrize("action", sorted(KickqSteering.actions))
def test_a_job_that_a_scheduler_is_about_to_queue_is_held(
    client: redis.Redis, kickq: KickqClient, job_id: str, scheduler: Scheduler, action: Action
) -> None:
    assert steer(kickq, action, job_id, NOW - EARLY) == "held"
    assert kickq.cancel("mail", job_id, now=NOW - EARLY) is None
    perform(client, scheduler.fire(NOW))
    (job,) = kickq.take("mail", now=NOW)
    assert job.id == job_id


@pytest.mark.usefixtures("scheduler")
def test_a_job_that_was_lost_with_a_scheduler_can_be_deleted_when_it_is_long_past(kickq: KickqClient, job_id: str) -> None:
    assert steer(kickq, Action.DELETE, job_id, NOW + LATE - 1) == "held"
    assert steer(kickq, Action.DELETE, job_id, NOW + LATE) == "done"
    assert kickq.get(job_id) is None


def test_a_job_that_stands_in_the_schedule_can_be_deleted_until_a_scheduler_takes_it(kickq: KickqClient, job_id: str) -> None:
    assert steer(kickq, Action.CANCEL, job_id, NOW - EARLY) == "done"
    assert kickq.get(job_id) is None
