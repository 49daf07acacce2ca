"""What an operator of ours does to jobs of kue, kue sees, tells its listeners and goes on with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis
from ferryman.compat.kue.live import KueLive
from ferryman.compat.kue.steering import KueSteering
from ferryman.schema.connection.call import run
from ferryman.schema.steering import Action, Value

from ...support.servers import Server
from .driver import Kue
from .waits import awaited


@pytest.fixture
def kue(server: Server) -> Iterator[Kue]:
    with Kue.start(server) as process:
        yield process


def steer(client: redis.Redis, action: Action, number: int, value: Value = None) -> str:
    return run(client, KueSteering(KueLive("q")).act(action, "email", str(number), value))


def test_a_delayed_job_that_is_promoted_runs_at_kue_and_its_creator_hears_of_it(kue: Kue, client: redis.Redis) -> None:
    number = kue.call("create", type="email", data={"do": "ok"}, options={"delay": 3_600_000}, listen=True)
    assert kue.call("counts")["delayed"] == 1
    assert steer(client, Action.PROMOTE, number) == "done"
    kue.told(number, "promotion")
    assert kue.call("counts")["inactive"] == 1
    kue.call("process", type="email")
    kue.told(number, "complete")


def test_kue_runs_a_restarted_job_again_and_one_with_its_new_data(kue: Kue, client: redis.Redis) -> None:
    failing, edited = (kue.call("create", type="email", data={"do": "fail"}) for _ in range(2))
    assert steer(client, Action.EDIT, edited, b'{"do":"ok"}') == "done"
    kue.call("process", type="email")
    awaited(lambda: kue.call("counts")["failed"] == 1)
    kue.wait_for(lambda event: event == {"event": "end", "id": edited})
    client.hset(f"q:job:{failing}", "data", '{"do":"ok"}')
    assert steer(client, Action.REQUEUE, failing) == "done"
    kue.wait_for(lambda event: event == {"event": "end", "id": failing})
    awaited(lambda: kue.call("counts")["complete"] == 2)
    assert kue.call("counts")["failed"] == 0


def test_kue_takes_jobs_by_their_new_priorities_and_not_those_that_are_gone(kue: Kue, client: redis.Redis) -> None:
    first, second, third = (kue.call("create", type="email", data={"do": "ok"}) for _ in range(3))
    assert steer(client, Action.REPRIORITISE, third, -10) == "done"
    assert kue.call("get", id=third)["priority"] == -10
    assert steer(client, Action.DELETE, first) == "done"
    assert kue.call("counts")["inactive"] == 2
    kue.call("process", type="email")
    kue.begun(second)
    begun = [event["id"] for event in kue.events if event["event"] == "begin"]
    assert begun == [third, second]
