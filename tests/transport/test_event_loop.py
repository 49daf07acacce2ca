"""kombu's event loop, as Celery's prefork and threads pools drive it: what a connection leaves in it."""

from __future__ import annotations

import socket
import time

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
from ferryman.transport.consume import wake_timer
from ferryman.transport.consume.wake_timer import WakeTimer
from kombu import Connection, Consumer, Producer, Queue
from kombu.asynchronous import Hub


@pytest.fixture
def connection(server):
    with Connection(server.url()) as connected:
        yield connected


@pytest.fixture
def hub():
    """A loop that never sleeps, because something else goes on all the time."""
    made = Hub()
    reader, writer = socket.socketpair()
    writer.send(b"!")
    made.add_reader(reader.fileno(), lambda: None)
    yield made
    made.close()
    reader.close()
    writer.close()


def turn_until(hub, is_done, seconds=60.0):
    """Turns the loop, and gives the most timers that have stood in it."""
    most, deadline = 0, time.monotonic() + seconds
    while not is_done() and time.monotonic() < deadline:
        hub.run_once()
        most = max(most, len(hub.timer))
    assert is_done()
    return most


def test_many_turns_while_something_is_due_soon_leave_no_timers_behind(connection, hub):
    received = []
    with connection.channel() as channel, Consumer(channel, [Queue("q")], on_message=received.append):
        connection.transport.register_with_event_loop(connection, hub)
        Producer(channel).publish("later", routing_key="q", headers={"x-delay": 900})
        most = turn_until(hub, lambda: received)
    assert most < 8


def test_acks_that_are_kept_back_have_one_timer(connection, hub):
    acked = []

    def ack(message):
        message.ack()
        acked.append(message)

    with connection.channel() as channel, Consumer(channel, [Queue("q")], on_message=ack, prefetch_count=4):
        connection.transport.register_with_event_loop(connection, hub)
        for _ in range(200):
            Producer(channel).publish("now", routing_key="q")
        most = turn_until(hub, lambda: len(acked) == 200)
    assert most < 8


def test_a_wake_timer_is_moved_only_to_an_earlier_moment_and_fires_once(hub):
    timer = WakeTimer()
    for _ in range(100):
        timer.wake_within(hub, 0.5)
    assert len(hub.timer) == 1
    timer.wake_within(hub, 0.01)
    fires_in, entry = next(iter(hub.timer))
    assert (fires_in <= 0.01, entry) == (True, None)
    timer.cancel()
    assert [entry.canceled for _, _, entry in hub.timer.queue] == [True, True]


def test_a_wake_timer_that_was_cleared_with_all_others_is_set_again(hub, monkeypatch):
    monkeypatch.setattr(wake_timer, "LOST", 0.0)
    timer = WakeTimer()
    timer.wake_within(hub, 0.001)
    hub.timer.clear()
    time.sleep(0.002)
    timer.wake_within(hub, 0.001)
    assert len(hub.timer) == 1


def test_a_closed_connection_leaves_no_timer_that_would_still_go_off(connection, hub):
    with connection.channel() as channel, Consumer(channel, [Queue("q")], on_message=print):
        connection.transport.register_with_event_loop(connection, hub)
        Producer(channel).publish("later", routing_key="q", headers={"x-delay": 900})
        for _ in range(10):
            hub.run_once()
    connection.close()
    assert all(entry.canceled for _, _, entry in hub.timer.queue)


def test_a_pool_says_what_it_wants_to_write_in_the_turn_in_which_it_was_given_a_task(connection, hub):
    """A pool of processes says so in a tick of its own; the poller's next take, a round trip, must not come before it writes."""
    happened = []
    with connection.channel() as channel, Consumer(channel, [Queue("q")], on_message=lambda _message: happened.append("given")):
        connection.transport.register_with_event_loop(connection, hub)
        # The loop's ticks have no order, so some of so many come before the poller's.
        hub.on_tick.update(lambda at=at: happened.append(at) for at in range(64))
        Producer(channel).publish("now", routing_key="q")
        turn_until(hub, lambda: "given" in happened)
    assert set(happened[happened.index("given") + 1 :]) == set(range(64))
