"""Other options than the usual ones: separator, steps and names of unacked keys, found from the keys or told by the URL."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import redis
from ferryman.compat.kombu.bindings import separator_in
from ferryman.migrations.engine import Difference
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import AddressError
from ferryman.schema.job import Job, State
from ferryman.schema.rule import Finding
from kombu import Connection, Consumer, Exchange, Producer, Queue

from ...support.servers import Server

pytestmark = pytest.mark.in_turn

ENGINE = LocalEngine()
EVERY_STEP = list(range(10))
PRIORITIES = (0, 2, 3, 5, 9)


def connection(server: Server, **options: object) -> Connection:
    return Connection(f"redis://{server.host}:{server.port}/0", transport_options=options)


NEWS = Queue("news all", Exchange("news", type="topic"), routing_key="news.#")
MAIL = Queue("mail", Exchange("post"), routing_key="letter")


def publish(server: Server, **options: object) -> None:
    """Messages of every priority: by the queue's name, by a direct exchange, and by a topic exchange."""
    with connection(server, **options) as opened, opened.channel() as channel:
        for queue in (NEWS(channel), MAIL(channel), Queue("celery")(channel)):
            queue.declare()
        producer = Producer(channel)
        for priority in PRIORITIES:
            task = {"task": "t", "id": f"id-{priority}"}
            producer.publish([priority], headers=task, priority=priority, routing_key="celery")
            producer.publish([priority], headers=task, priority=priority, exchange="post", routing_key="letter")
            producer.publish([priority], headers=task, priority=priority, exchange="news", routing_key="news.today")


def take(server: Server, **options: object) -> list[int]:
    """The priorities of what a consumer of kombu gets from all queues, in its order; everything stays unacked."""
    taken: list[int] = []
    with connection(server, queue_order_strategy="priority", **options) as opened, opened.channel() as channel:
        queues = [queue(channel) for queue in (Queue("celery"), MAIL, NEWS)]
        consumer = Consumer(channel, queues, callbacks=[lambda body, _message: taken.append(body[0])])
        channel.qos.restore_at_shutdown = False
        with consumer:
            for _ in range(3 * len(PRIORITIES)):
                opened.drain_events(timeout=60)
        channel.qos._delivered.clear()
    return taken


def address(server: Server, db: int = 0, **parameters: str) -> Address:
    return Address.parse(server.url(db, family="kombu", **parameters))


def jobs(source: Address) -> list[Job]:
    return list(ENGINE.jobs(source, 0))


def audited(source: Address) -> list[Finding]:
    found: list[Finding] = []
    with redis.Redis(host=source.hosts[0][0], port=source.hosts[0][1]) as client:
        ENGINE.audit(source, int(client.time()[0]) * 1000, found.append)
    return found


def said(source: Address) -> set[str]:
    return {finding.rule for finding in audited(source)}


@pytest.mark.parametrize("sep", [":", "--", "::", "|", " / "])
@pytest.mark.parametrize("steps", [EVERY_STEP, [0, 3, 6, 9]], ids=["every-step", "usual-steps"])
def test_another_separator_is_found_from_messages_and_bindings(server: Server, sep: str, steps: list[int]) -> None:
    publish(server, sep=sep, priority_steps=steps)
    found = jobs(address(server))
    assert {job.queue for job in found} == {"celery", "mail", "news all"}
    assert {(job.queue, job.priority) for job in found} == {
        (queue, each) for queue in ("celery", "mail", "news all") for each in PRIORITIES
    }
    for queue in ("celery", "mail", "news all"):
        order = sorted((job.position or 0, job.priority or 0) for job in found if job.queue == queue)
        assert [priority for _, priority in order] == sorted(PRIORITIES)
    assert audited(address(server)) == []


def test_what_the_url_says_of_separator_and_steps_counts(server: Server) -> None:
    publish(server, sep=":", priority_steps=EVERY_STEP)
    with_settings = address(server, sep=":", priority_steps="0,1,2,3,4,5,6,7,8,9")
    assert audited(with_settings) == []
    # A bucket that only the messages prove is remembered: no URL names it.
    named = [(job, (job.extra.get("kombu") or {}).get("step")) for job in jobs(address(server))]
    assert {(job.priority, step) for job, step in named} == {(0, None), (2, 2), (3, None), (5, 5), (9, None)}
    assert [(job.id, job.queue, job.rank, job.position) for job in jobs(with_settings)] == [
        (job.id, job.queue, job.rank, job.position) for job, _ in named
    ]
    # And where it is wrong, that shows.
    assert "KOMBU-9" in said(address(server, sep="|"))
    assert said(address(server, sep=":", priority_steps="0,5")) == {"KOMBU-7"}


@pytest.mark.parametrize("parameters", [{}, {"sep": ":", "priority_steps": "0,1,2,3,4,5,6,7,8,9"}], ids=["usual", "other"])
def test_what_is_written_a_consumer_with_these_options_takes_in_order(server: Server, parameters: dict[str, str]) -> None:
    options = {"sep": ":", "priority_steps": EVERY_STEP} if parameters else {}
    publish(server)
    target = Address.parse(server.url(1, family="kombu", **parameters))
    source = address(server)
    plan = Plan.between(source, target, 0)
    ENGINE.migrate(source, target, plan, lambda _finding: None)
    differences: list[Difference] = []
    ENGINE.verify(source, target, plan, differences.append)
    assert differences == []
    server.client().execute_command("SWAPDB", 0, 1)
    taken = take(server, **options)
    by_queue = len(PRIORITIES)
    assert sorted(taken) == sorted(3 * PRIORITIES)
    if parameters:
        assert server.client().llen("celery:5") == 0
        assert taken[:1] == [0]
    assert len(taken) == 3 * by_queue


def buckets(client: redis.Redis) -> dict[bytes, list[bytes]]:
    """The messages of each list, those that run first last."""
    return {key: client.lrange(key, 0, -1) for key in client.scan_iter() if client.type(key) == b"list"}


@pytest.mark.parametrize("away", ["bee", "ferryman", "kickq"])
@pytest.mark.parametrize("parameters", [{}, {"priority_steps": "0,5,10"}], ids=["usual", "named"])
def test_a_message_stays_in_its_bucket_and_one_that_the_target_lacks_is_named(
    server: Server, away: str, parameters: dict[str, str]
) -> None:
    publish(server, priority_steps=[0, 5, 10])
    here, there = address(server), Address.parse(server.url(1, family=away))
    back = address(server, 2, **parameters)
    ENGINE.migrate(here, there, Plan.between(here, there, 0, lossy=True), lambda _finding: None)
    found: list[Finding] = []
    for dry_run in (True, False):
        ENGINE.migrate(there, back, Plan.between(there, back, 0, lossy=not dry_run), found.append, dry_run=dry_run)
    named = [finding.detail for finding in found if finding.rule == "KOMBU-W9"]
    assert all("bucket 5" in detail and "0,3,6,9" in detail for detail in named)
    assert len(named) == (0 if parameters else 2 * 3 * len([each for each in PRIORITIES if each >= 5]))
    differences: list[Difference] = []
    ENGINE.verify(there, back, Plan.between(there, back, 0, lossy=True), differences.append)
    assert differences == []
    before, after = buckets(server.client(0)), buckets(server.client(2))
    assert {key: len(texts) for key, texts in after.items()} == {key: len(texts) for key, texts in before.items()}
    tags = [
        {key: [json.loads(text)["properties"]["delivery_tag"] for text in texts] for key, texts in each.items()}
        for each in (before, after)
    ]
    assert tags[0] == tags[1]


@pytest.mark.parametrize(
    ("names", "parameters"),
    [
        ({"unacked_key": "app1_unacked", "unacked_index_key": "app1_unacked_index"}, {}),
        (
            {"unacked_key": "held", "unacked_index_key": "since", "unacked_mutex_key": "lock"},
            {"unacked_key": "held", "unacked_index_key": "since", "unacked_mutex_key": "lock"},
        ),
    ],
    ids=["from-the-keys", "from-the-url"],
)
def test_unacked_messages_under_other_names_are_held_since_then(
    server: Server, names: dict[str, str], parameters: dict[str, str]
) -> None:
    publish(server)
    take(server, **names)
    found = jobs(address(server, **parameters))
    assert {job.state for job in found} == {State.ACTIVE}
    assert len(found) == 3 * len(PRIORITIES)
    assert all(job.started_at for job in found)
    assert audited(address(server, **parameters)) == []


def test_the_visibility_timeout_of_the_url_counts(server: Server) -> None:
    publish(server)
    take(server)
    client = server.client()
    for tag, score in client.zrange("unacked_index", 0, -1, withscores=True):
        client.zadd("unacked_index", {tag: score - 2000})
    assert said(address(server)) == set()
    assert said(address(server, visibility_timeout="600")) == {"KOMBU-5"}


def test_a_queue_whose_name_ends_in_a_number_stays_what_it_is(server: Server) -> None:
    with connection(server) as opened, opened.channel() as channel:
        for name in ("shard:3", "shard"):
            queue = Queue(name)(channel)
            queue.declare()
            Producer(channel).publish([1], headers={"task": "t", "id": name}, priority=3, routing_key=name)
    assert {job.queue for job in jobs(address(server))} == {"shard:3", "shard"}


@pytest.mark.parametrize("name", ["celery", "mail", "celery\x06\x163"])
def test_a_queues_key_of_another_type_is_found(server: Server, name: str) -> None:
    publish(server)
    client = server.client()
    for write in (lambda: client.set(name, "x"), lambda: client.hset(name, "a", "b"), lambda: client.sadd(name, "x")):
        client.delete(name)
        write()
        assert [(each.rule, each.key) for each in audited(address(server))] == [("KOMBU-9", name)]


@pytest.mark.parametrize(
    ("member", "sep"),
    [
        ("celery::celery", ":"),
        ("a-b----c", "--"),
        ("a--b----c", None),
        ("::queue", ":"),
        ("a*b?[c]::a*b?[c]", ":"),
        ("o'brien\"::::o'brien\"", "::"),
        (r"news.*:^news\.[^\.]+$:all", ":"),
        (r"#|^.*?$|all", "|"),
        ("only one part", None),
        ("a:b", None),
        ("::", None),
        ("a::b::c", None),
        (r"news.*:^something else$:all", None),
    ],
)
def test_a_member_of_a_binding_table_tells_its_separator(member: str, sep: str | None) -> None:
    assert separator_in(member) == sep


def wrong() -> Iterator[tuple[str, str]]:
    yield "sep=", "'sep' must not be empty"
    yield "priority_steps=a", "'priority_steps' must be whole numbers with commas"
    yield "priority_steps=3,6", "'priority_steps' must begin with 0"
    yield "visibility_timeout=0", "'visibility_timeout' must be a number of seconds above 0"
    yield "unacked_key=", "'unacked_key' must not be empty"


@pytest.mark.parametrize(("query", "message"), list(wrong()))
def test_a_wrong_value_is_told(query: str, message: str) -> None:
    with pytest.raises(AddressError, match=message):
        Address.parse(f"ferryman://localhost/0?family=kombu&{query}")


def test_the_url_is_shown_with_what_it_says() -> None:
    shown = Address.parse("ferryman://localhost/0?family=kombu&sep=%3A&priority_steps=0,5").display()
    assert Address.parse(shown).settings == (("priority_steps", (0, 5)), ("sep", ":"))
