"""What one thread of the transport hands over to another, in every order of their steps."""

from __future__ import annotations

import contextlib
import logging
import select
import sys
import threading
from collections import deque

import pytest
from celery.worker.consumer.consumer import Consumer as CeleryConsumer
from ferryman.transport.consume import acks as acks_module
from ferryman.transport.consume import poller as poller_module
from ferryman.transport.consume import waker as waker_module
from ferryman.transport.consume.waker import Waker
from kombu import Connection, Consumer, Producer, Queue
from kombu.asynchronous import Hub

from ..support.interleaving import SteppedLock, in_every_order


def is_readable(waker):
    return bool(select.select([waker], [], [], 0)[0])


def test_each_wake_ends_a_wait_whatever_the_other_threads_do_meanwhile():
    def case(interleaving):
        waker, changes, seen = Waker(), [], []

        def change():
            changes.append("change")
            waker.wake()

        def loop():
            for _ in range(2):
                if is_readable(waker):
                    waker.reset()
                    seen[:] = changes

        interleaving.run([change, loop, change])

        def check():
            assert seen == changes or is_readable(waker), "a change was not announced"
            if is_readable(waker):  # an event loop resets it only then
                waker.reset()
            waker.wake()
            assert is_readable(waker), "it wakes no more"
            waker.close()

        return check

    assert in_every_order(case, [waker_module, sys.modules[__name__]]) > 100


def test_a_wake_while_the_waker_is_closed_raises_nothing():
    def case(interleaving):
        waker = Waker()
        interleaving.run([waker.wake, waker.close])
        return lambda: None

    assert in_every_order(case, [waker_module]) > 3


@pytest.fixture
def connection(server):
    with Connection(server.url()) as connected:
        yield connected


def test_no_ack_waits_without_a_loop_that_is_woken_for_it(connection):
    """The thread of a task acks, the event loop takes and sends acks, the renewer sends what a slow loop keeps back."""
    hub, given = Hub(), []
    with connection.channel() as channel, Consumer(channel, [Queue("q")], on_message=given.append, prefetch_count=4):
        connection.transport.register_with_event_loop(connection, hub)
        poller, size = connection.transport.poller, channel.session.scripts.size("q")
        poller.tick()
        channel.renewer.remove(channel.leases)  # its flush is one of the threads below

        def case(interleaving):
            channel.acks.lock, channel.session.link._lock = SteppedLock(interleaving), SteppedLock(interleaving)
            given.clear()
            Producer(channel).publish("now", routing_key="q")
            while not given:
                poller.tick()
            if is_readable(poller._waker):
                poller._waker.reset()
            interleaving.run([given[0].ack, poller.tick, channel.acks.flush])

            def check():
                assert not channel.acks or is_readable(poller._waker), "nobody will send this ack"
                poller.tick()
                channel.acks.flush()
                assert channel.session.link.run(size).held == 0

            return check

        assert in_every_order(case, [acks_module, waker_module], preemptions=1) > 10
        channel.acks.lock, channel.session.link._lock = threading.RLock(), threading.RLock()
    hub.close()


def test_an_interruption_ends_the_wait_that_is_under_way_or_the_next_one(connection):
    def is_over():
        try:
            connection.drain_events(timeout=0)
        except TimeoutError:
            return False
        return True

    with connection.channel() as channel, Consumer(channel, [Queue("q")], on_message=print):
        is_over()

        def case(interleaving):
            ends = []
            interleaving.run([connection.transport.interrupt, lambda: ends.append(is_over())])

            def check():
                assert ends[0] or is_over()
                assert not is_over()

            return check

        assert in_every_order(case, [poller_module, waker_module], preemptions=1) > 10


@contextlib.contextmanager
def never_woken_by_timers(hub):
    """A loop that waits until something happens, in a thread. Gives the event that it has begun to wait."""
    waits, is_over, known = threading.Event(), threading.Event(), hub.poller.poll

    def poll(_timeout):
        events = known(0)
        if events:
            return events
        waits.set()
        return known(3600)

    hub.poller.poll = poll

    def run():
        while not is_over.is_set():
            hub.run_once()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield waits
    finally:
        is_over.set()
        for wakes, _ in list(hub.readers.values()):
            if isinstance(getattr(wakes, "__self__", None), Waker):
                wakes.__self__.wake()
        thread.join()


def test_a_call_that_another_thread_asks_for_ends_the_wait_of_the_event_loop(connection):
    """So a pool of threads acks. Before kombu 5.7 the event loop itself would go on waiting."""
    hub, given, acked = Hub(), threading.Event(), threading.Event()
    messages = []

    def give(message):
        messages.append(message)
        given.set()

    def ack():
        messages[0].ack()
        acked.set()

    with connection.channel() as channel, Consumer(channel, [Queue("q")], on_message=give, prefetch_count=1):
        Producer(channel).publish("now", routing_key="q")
        connection.transport.register_with_event_loop(connection, hub)
        while not given.is_set():
            connection.transport.poller.tick()
        with never_woken_by_timers(hub) as waits:
            assert waits.wait(60)
            threading.Thread(target=hub.call_soon, args=(ack,)).start()
            assert acked.wait(20)
    hub.close()


def test_a_call_that_is_asked_of_a_worker_without_an_event_loop_ends_its_wait(connection):
    """So pools of greenlets ack before Celery 5.7."""
    worker = CeleryConsumer.__new__(CeleryConsumer)
    worker.hub, worker.connection, worker._pending_operations = None, connection, deque()
    messages = []
    with connection.channel() as channel, Consumer(channel, [Queue("q")], on_message=messages.append, prefetch_count=1):
        Producer(channel).publish("now", routing_key="q")
        connection.drain_events(timeout=60)
        drain = threading.Thread(target=connection.drain_events, daemon=True)
        drain.start()
        worker.call_soon(messages[0].ack_log_error, logging.getLogger("test"), ())
        drain.join(20)
        assert not drain.is_alive()
        worker.perform_pending_operations()
        assert connection.default_channel.session.link.run(channel.session.scripts.size("q")).held == 0
