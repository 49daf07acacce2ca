"""What operators do to jobs of other systems: it happens or says why not, and the family's own rules stay silent."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import redis
from attrs import frozen
from ferryman.migrations.local import LocalEngine
from ferryman.operations.actions import ActionRecord
from ferryman.operations.steering import open_steering
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.call import run
from ferryman.schema.errors import KeyspaceNotFound, UsageError
from ferryman.schema.family import get_family
from ferryman.schema.job import Job, State
from ferryman.schema.live import Failure, ForeignFamily, NewJob
from ferryman.schema.native.keys import DEFAULT_PREFIX
from ferryman.schema.steering import Action, JobFilter, Value

from ..support.dumps import findings
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

FAMILIES = ("kue", "qless", "bee", "kickq", "pjq", "kombu")
LEASE = 60_000
HEADERS = b'"content-encoding":"utf-8","content-type":"application/json","headers":{},"properties":{"body_encoding":"base64"}'
MESSAGE = b'{"body":"e30=",' + HEADERS + b"}"
VALUES: dict[Action, Value] = {Action.REPRIORITISE: 5, Action.EDIT: b'{"edited":1}', Action.MOVE: "video"}


@frozen
class Keyspace:
    """A keyspace of one family on a server, with what tests need of it."""

    name: str
    address: Address
    client: redis.Redis

    @property
    def live(self) -> ForeignFamily:
        family = get_family(self.name)
        live = family.live(family.default_prefix, DEFAULT_PREFIX)
        assert live is not None
        return live

    def put(self, *, delay_ms: int = 0, queue: str = "mail") -> str:
        payload = MESSAGE if self.live.carries_messages else b'{"a":1}'
        return run(
            self.client, self.live.put(NewJob(queue, payload, "Klass" if self.live.has_names else None, delay_ms=delay_ms))
        )

    def take(self) -> str:
        (job,) = run(self.client, self.live.take("mail", "ann", 1, LEASE)).jobs
        return job.id

    def fail(self) -> str:
        job_id = self.take()
        run(self.client, self.live.fail("mail", "ann", job_id, Failure("no", is_final=True)))
        return job_id

    def complete(self) -> str:
        job_id = self.take()
        run(self.client, self.live.complete("mail", "ann", [(job_id, None)]))
        return job_id

    def jobs(self) -> dict[str, Job]:
        try:
            return {job.id: job for job in LocalEngine().jobs(self.address, 0)}
        except KeyspaceNotFound:
            return {}

    def steer(self, action: Action, job_id: str, value: Value = None) -> str:
        steering = get_family(self.name).steering(get_family(self.name).default_prefix)
        assert steering is not None
        outcome = run(self.client, steering.act(action, "mail", job_id, VALUES.get(action) if value is None else value))
        return str(outcome)

    def states(self, action: Action) -> frozenset[State]:
        steering = get_family(self.name).steering(get_family(self.name).default_prefix)
        assert steering is not None
        return steering.actions.get(action, frozenset())

    def make(self, state: State) -> str:
        """A job in a state."""
        if state is State.BLOCKED:
            pytest.skip("blocked jobs are those of the family's own tests")
        job_id = self.put(delay_ms=3_600_000 if state is State.SCHEDULED else 0)
        made: Callable[[], str] | None = {State.ACTIVE: self.take, State.FAILED: self.fail, State.COMPLETED: self.complete}.get(
            state
        )
        return made() if made is not None else job_id


@pytest.fixture(params=FAMILIES)
def keyspace(request: pytest.FixtureRequest, server: Server, client: redis.Redis) -> Keyspace:
    return Keyspace(request.param, Address.parse(server.url(family=request.param)), client)


def _check(keyspace: Keyspace) -> None:
    now_ms = round(time.time() * 1000)
    assert findings(keyspace.client, keyspace.name, keyspace.address.prefix, now_ms) == []


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("state", [State.WAITING, State.SCHEDULED, State.ACTIVE, State.FAILED, State.COMPLETED])
def test_an_action_does_what_it_says_where_the_family_can_do_it(keyspace: Keyspace, action: Action, state: State) -> None:
    if not keyspace.states(action):
        with pytest.raises(UsageError, match="what can be done"):
            keyspace.steer(action, "1")
        return
    if state is State.SCHEDULED and not keyspace.live.can_delay:
        pytest.skip("there are no delays")
    if keyspace.name == "kombu" and state in (State.FAILED, State.COMPLETED, State.SCHEDULED):
        pytest.skip("messages that have ended are gone")
    job_id = keyspace.make(state)
    before = keyspace.jobs().get(job_id)
    outcome = keyspace.steer(action, job_id)
    after = keyspace.jobs().get(job_id)
    if state is State.ACTIVE:
        run(keyspace.client, keyspace.live.complete("mail", "ann", [(job_id, None)]))
        assert outcome == ("missing" if keyspace.name == "kombu" else "held")
    if state not in keyspace.states(action):
        assert outcome in ("held", "refused", "missing")
        assert after == before
    else:
        assert outcome == "done"
        match action:
            case Action.PROMOTE | Action.REQUEUE:
                assert after is not None
                assert after.state is State.WAITING
                _check(keyspace)
                assert keyspace.complete() == job_id
            case Action.REPRIORITISE:
                assert after is not None
                assert (after.priority, after.state) == (5, state)
            case Action.EDIT:
                assert after is not None
                assert (after.payload, after.state) == (VALUES[action], state)
            case Action.MOVE:
                assert after is not None
                assert (after.queue, after.state) == ("video", state)
            case Action.CANCEL | Action.DELETE:
                assert after is None or after.state is State.CANCELLED
                assert run(keyspace.client, keyspace.live.take("mail", "bob", 5, LEASE)).jobs == ()
    _check(keyspace)


def test_a_job_that_is_not_there_is_missing(keyspace: Keyspace) -> None:
    other = keyspace.put(queue="other")
    for action in Action:
        if keyspace.states(action):
            assert keyspace.steer(action, "999999") == "missing"
            assert keyspace.steer(action, other) == "missing"


@pytest.mark.parametrize(
    ("action", "value"),
    [
        (Action.REPRIORITISE, "high"),
        (Action.REPRIORITISE, float("nan")),
        (Action.EDIT, b"{"),
        (Action.MOVE, ""),
        (Action.CANCEL, "x"),
    ],
)
def test_a_value_that_cannot_be_is_refused(keyspace: Keyspace, action: Action, value: Value) -> None:
    with pytest.raises(UsageError):
        keyspace.steer(action, keyspace.put(), value)


def test_kue_runs_jobs_in_the_order_of_their_new_priorities(server: Server, client: redis.Redis) -> None:
    keyspace = Keyspace("kue", Address.parse(server.url(family="kue")), client)
    first, second, third = (keyspace.put() for _ in range(3))
    assert keyspace.steer(Action.REPRIORITISE, third, -10) == "done"
    assert [keyspace.take() for _ in range(3)] == [third, first, second]


def test_kue_tells_its_listeners(server: Server, client: redis.Redis) -> None:
    keyspace = Keyspace("kue", Address.parse(server.url(family="kue")), client)
    job_id = keyspace.put(delay_ms=3_600_000)
    with client.pubsub() as listener:
        listener.subscribe("q:events")
        assert listener.get_message(timeout=60) is not None
        keyspace.steer(Action.PROMOTE, job_id)
        heard = [listener.get_message(timeout=60) for _ in range(2)]
    assert [b'"event":"promotion"' in heard[0]["data"], b'"event":"enqueue"' in heard[1]["data"]] == [True, True]  # type: ignore[index]


def test_qless_does_not_cancel_what_others_wait_for(server: Server, client: redis.Redis) -> None:
    keyspace = Keyspace("qless", Address.parse(server.url(family="qless")), client)
    job_id = keyspace.put()
    other = run(client, keyspace.live.put(NewJob("mail", b"{}", "Klass", options={"depends": [job_id]})))
    assert keyspace.steer(Action.CANCEL, job_id) == "refused"
    assert keyspace.steer(Action.CANCEL, other) == "done"
    assert keyspace.steer(Action.CANCEL, job_id) == "done"
    assert keyspace.jobs() == {}


def test_a_paused_queue_of_qless_gives_nothing_until_it_goes_on(server: Server, client: redis.Redis) -> None:
    keyspace = Keyspace("qless", Address.parse(server.url(family="qless")), client)
    job_id = keyspace.put()
    with open_steering(keyspace.address) as steering:
        assert steering.pause("mail")
        assert not steering.pause("mail")
        assert steering.paused(["mail", "video"]) == {"mail"}
        assert run(client, keyspace.live.take("mail", "ann", 1, LEASE)).jobs == ()
        assert steering.resume("mail")
        assert not steering.resume("mail")
    assert keyspace.take() == job_id


@pytest.mark.parametrize(("others", "reads_all"), [(0, True), (120, False)])
@pytest.mark.parametrize("family", ["kue", "qless", "bee"])
def test_few_of_many_jobs_are_read_from_their_index_and_nearly_all_in_one_reading(
    server: Server, client: redis.Redis, family: str, others: int, reads_all: bool
) -> None:
    keyspace = Keyspace(family, Address.parse(server.url(family=family)), client)
    ids = [keyspace.put() for _ in range(4)]
    for _ in range(others):
        keyspace.put(queue="other")
    with open_steering(keyspace.address) as steering:
        client.config_resetstat()
        found = steering.act_on_matching(Action.CANCEL, "mail", State.WAITING, JobFilter(), dry_run=True)
        called = client.info("commandstats")
    assert (found.done, found.looked_at) == (len(ids), len(ids))
    assert ("cmdstat_scan" in called) is reads_all


def test_all_that_match_are_acted_on_and_recorded(keyspace: Keyspace) -> None:
    ids = [keyspace.put() for _ in range(30)]
    records: list[ActionRecord] = []
    action = Action.DELETE if keyspace.states(Action.DELETE) else Action.CANCEL
    held = keyspace.take()
    with open_steering(keyspace.address, by="ann", sinks=[records.append]) as steering:
        counted = steering.act_on_matching(action, "mail", State.WAITING, JobFilter(), dry_run=True)
        done = steering.act_on_matching(action, "mail", State.WAITING, JobFilter())
    assert counted.done == done.done == len(ids) - 1
    assert [(record.by, record.action, record.done) for record in records] == [("ann", str(action), 29)]
    assert {job.id for job in keyspace.jobs().values() if job.state is not State.CANCELLED} == {held}
