"""Poller: brings messages from the server to the channels of one connection, from an event loop or from ``drain_events``.

A queue is either *hot*, there may be something to take, or quiet. Hot queues are polled at once, as far as their channel's
prefetch limit leaves room; for the quiet ones it waits until they are woken (``wakeups.py``). To be woken too late costs time,
never a message, and the time is bounded, because every take also says when something will happen by itself (a scheduled message
due, another consumer's lease lapsing) and each queue is polled from time to time in any case.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Container
from typing import TYPE_CHECKING, Any

import redis
from attrs import define
from kombu.transport.base import StdChannel
from kombu.utils.eventio import ERR, READ, poll

from ...schema.errors import FerrymanError, MalformedValue
from ..celery.ended_tasks import EndedTasks
from ..channel import Channel, Consumer
from ..connection.blocking_connection import BLOCK
from ..connection.cluster_link import ClusterLink
from ..dead_letters import DeadLetters
from ..errors import CONNECTION_ERRORS, LeaseLapsed
from ..live.foreign_queue import ForeignQueue
from ..message import Content, content
from ..session import Session
from . import soon
from .acks import LINGER
from .deliveries import PendingDeliveries, PendingDelivery
from .fanout import ClusterFanout, Fanout, StreamFanout
from .tracking import Tracker
from .wake_timer import WakeTimer
from .waker import Waker
from .wakeups import ClusterWakeups, TokenWakeups, Wakeups

if TYPE_CHECKING:
    from ..live.wakeups import ForeignWakeups

logger = logging.getLogger("ferryman.transport")

IDLE_INTERVAL = 1.0
"""Seconds between turns of an idle event loop, in which a connection that has gone silent is noticed."""
BUSY_INTERVAL = 0.05
"""Seconds after which a worker that takes only what it can work on at once is checked again."""
POLL_AHEAD = 5.0
"""Seconds: a queue whose time comes so soon is polled along with one whose time has come."""
RETRY_INTERVAL = 5.0
"""Seconds after which a queue is tried again that could not be consumed."""
TIME_SLICE = 0.01
"""Seconds for which one turn of an event loop hands out messages; other events come in between."""


@define
class Watch:
    """One queue that this connection consumes."""

    hot: bool = True
    next_poll: float = 0.0
    """When to poll it in any case, on the monotonic clock."""


class Poller:
    """One for each transport. Not thread-safe, except ``changed`` and ``interrupt``."""

    def __init__(self, session: Session, dead_letters: DeadLetters, channels: list[Channel]) -> None:
        self._session = session
        self._dead_letters = dead_letters
        self._channels = channels
        """The transport's own list, of all channels that are open."""
        self._watches: dict[str, Watch] = {}
        self._ready = PendingDeliveries()
        self._ended_tasks = EndedTasks(session)
        self._turn = 0
        self._wakeups, self.fanout = self._new_waits()
        self._foreign_wakeups = self._new_foreign_wakeups()
        self._waker = Waker()
        self._loop: Any = None
        self._poll_timer = WakeTimer()
        self._ack_timer = WakeTimer()
        self._idle_timer: Any = None
        self._has_yielded = False
        self._is_interrupted = False
        self._closed = False

    def _new_waits(self) -> tuple[Wakeups, Fanout]:
        """What waits for messages and for broadcasts, by the kind of server."""
        session = self._session
        links = session.settings.links
        if isinstance(session.link, ClusterLink):
            tracker = Tracker(session.link, links.node_client, links.reply_timeout, self._unregister)
            return ClusterWakeups(session, tracker), ClusterFanout(session, tracker)
        tokens, streams = links.blocking(self._unregister), links.blocking(self._unregister)
        return TokenWakeups(session, tokens), StreamFanout(session, streams)

    def _new_foreign_wakeups(self) -> ForeignWakeups | None:
        """What waits for the jobs of another system, if one carries the tasks."""
        session = self._session
        if session.foreign is None:
            return None
        from ..live.wakeups import ForeignWakeups

        return ForeignWakeups(session.foreign.family, session.link, session.settings.links, self._unregister)

    @property
    def _waits(self) -> list[Wakeups | Fanout]:
        """All that waits for something."""
        return [self._wakeups, self.fanout, *([self._foreign_wakeups] if self._foreign_wakeups is not None else [])]

    @property
    def is_busy(self) -> bool:
        """Whether this poller will soon flush acks by itself."""
        return self._loop is not None or bool(self._ready)

    # The Dispatcher of its channels

    def watch(self, queue: str) -> None:
        """A consumer has begun on this queue. Raises connection errors."""
        if type(queue) is not ForeignQueue:
            self.fanout.consume(queue)
        self._watches.setdefault(queue, Watch()).hot = True
        self.changed()

    def unwatch(self, queue: str) -> None:
        """A consumer of this queue has gone, and with the last one on this connection the interest in it."""
        if not self._consumers_of(queue):
            self._watches.pop(queue, None)
            self._watches.pop(ForeignQueue(queue), None)
            self.changed()
            self.fanout.cancel(queue)

    def _consumers_of(self, queue: str) -> list[tuple[Channel, Consumer]]:
        """The channels of this connection that consume a queue, each with its newest consumer of it, as on ``redis://``.

        A program that makes a ``SimpleQueue`` for each message, and closes none, waits for the message in the newest one.
        """
        return [(channel, consumers[-1]) for channel in self._channels if (consumers := channel.consumers(queue))]

    def changed(self) -> None:
        """Room or queues have changed: look again. From any thread."""
        if not self._closed:
            self._waker.wake()

    def forget(self, channel: StdChannel) -> None:
        """Drops all that was taken for a channel that closes; the channel gives the jobs back."""
        self._ready.forget(channel)

    def drop(self, channel: StdChannel, tags: Container[int]) -> set[int]:
        """Drops what was taken for a channel and is others' now, if it is not handed out yet. Gives the tags of that."""
        return self._ready.drop(channel, tags)

    # Plain drain_events

    def interrupt(self) -> None:
        """End ``drain``, so that its caller can do something else. From any thread."""
        self._is_interrupted = True
        self.changed()

    def drain(self, timeout: float | None) -> None:
        """Hand out one message. Return without one after ``interrupt``.

        Raises TimeoutError (``socket.timeout``) if no message comes in ``timeout`` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if not self._ready:
                self._fetch()
                for channel in list(self._channels):
                    channel.acks.flush()
                self._dead_letters.poll()
                self._ended_tasks.report()
            if self._ready:
                self._ready.deliver_one()
                return
            if self._is_interrupted:
                self._is_interrupted = False
                return
            self._start_waits()
            left = BLOCK if deadline is None else deadline - time.monotonic()
            if left <= 0 and timeout:
                raise TimeoutError("no message in time")
            if not self._wait(max(0.0, min(left, BLOCK, self._seconds_to_poll()))) and timeout is not None and left <= 0:
                raise TimeoutError("no message in time")

    def _wait(self, timeout: float) -> bool:
        """Waits for the sockets and the waker. Returns whether anything has happened."""
        poller = poll()
        for fd in {self._waker.fileno(), *(fd for each in self._waits for fd in each.sockets())}:
            poller.register(fd, READ | ERR)
        try:
            events = poller.poll(timeout)
        finally:
            poller.close()
        self._waker.reset()
        self._receive()
        return bool(events)

    def restart(self) -> None:
        """After a lost connection that is back: the waits begin anew, and every queue is polled."""
        for each in self._waits:
            each.close()
        for watch in self._watches.values():
            watch.hot = True
        self.changed()

    # Event loops

    def register(self, loop: Any) -> None:
        """Lets kombu's event loop drive this poller: ``tick`` is called once in each turn."""
        self._loop = loop
        loop.add_reader(self._waker.fileno(), self._waker.reset)
        loop.on_tick.add(self.tick)
        soon.add(loop, self._waker)
        self._idle_timer = loop.call_repeatedly(IDLE_INTERVAL, _nothing)

    def tick(self) -> None:
        """One turn of the event loop. Raises connection errors, which make Celery reconnect."""
        if self._closed:
            return
        with self._session.watching_for_failure():
            self._step()

    def _step(self) -> None:
        self._receive()
        self._dead_letters.poll()
        self._ended_tasks.report()
        if self._yields():
            return
        self._fetch()
        self._flush_acks()
        if self._ready:
            # The loop is to turn first: to see timers that callbacks set, and to write to the pool what they gave it.
            self._waker.wake()
            end = time.monotonic() + TIME_SLICE
            while self._ready and time.monotonic() < end:
                self._ready.deliver_guarded(self._loop)
                if self._yields():
                    break
            self._let_pool_write()
            return
        self._start_waits()
        for wait in self._waits:
            for fd in wait.sockets():
                if fd not in self._loop.readers:
                    # The next tick takes what has come. If nothing can come, a readable socket is a closed one, and would
                    # keep the loop spinning.
                    self._loop.add_reader(fd, wait.on_readable)
        due = self._seconds_to_poll()
        if due < IDLE_INTERVAL:
            self._poll_timer.wake_within(self._loop, due)

    def _yields(self) -> bool:
        """Whether the loop is to call first what it was asked to call soon; it turns again at once then.

        On the solo pool a callback runs a whole task, and Celery acks by such a call: without this, a finished task would not be
        acked until the next one has ended, or never, if that ends with its worker. Not twice in a row: somebody may ask for ever.
        """
        self._has_yielded = not self._has_yielded and bool(self._loop._ready)
        if self._has_yielded:
            self._waker.wake()
        return self._has_yielded

    def _let_pool_write(self) -> None:
        """Has a pool of processes say now, in its own tick, that it wants to write what it was just given.

        Its tick may have come before this one. It would then write only in the turn after the next, once this poller has taken
        again: a round trip, for which the task in hand would not begin.
        """
        for tick in list(self._loop.on_tick):
            if tick != self.tick:
                tick()

    def _lingers(self, channel: Channel) -> bool:
        """Whether a channel's acks, and its next take with them, are to wait for more: so a few make one round trip."""
        return self._loop is not None and channel.acks.are_lingering and channel.qos.is_well_filled

    def _flush_acks(self) -> None:
        for channel in list(self._channels):
            if self._lingers(channel):
                self._ack_timer.wake_within(self._loop, LINGER)  # the next tick sends what has come together
            else:
                channel.acks.flush()

    def _unregister(self, fd: int) -> None:
        """A socket is about to be closed; its number may soon be another socket's."""
        if self._loop is not None:
            self._loop.remove(fd)

    def close(self) -> None:
        """Ends every wait; detaches from the event loop."""
        if self._closed:
            return
        self._closed = True
        if self._loop is not None:
            for timer in (self._idle_timer, self._poll_timer, self._ack_timer):
                timer.cancel()
            self._loop.on_tick.discard(self.tick)
            self._loop.remove(self._waker.fileno())
            soon.remove(self._loop, self._waker)
        self._ready.clear()
        for each in self._waits:
            each.close()
        self._waker.close()

    # Taking

    def _fetch(self) -> None:
        """Takes from hot queues, as far as their channels have room, until something is ready."""
        now = time.monotonic()
        if self._wakeups.polls_together:
            self._poll_together(now)
        for queue in self._in_order():
            watch = self._watches.get(queue)
            if watch is None:
                continue
            if watch.next_poll <= now:
                watch.hot = True
            if watch.hot and not self._ended_tasks.is_due(queue):
                self._take_guarded(queue, watch)

    def _poll_together(self, now: float) -> None:
        """Polls quiet queues whose time has come or comes soon, in one call. Those with something to take become hot."""
        quiet = {
            queue: watch
            for queue, watch in self._watches.items()
            if not watch.hot and watch.next_poll <= now + POLL_AHEAD and type(queue) is not ForeignQueue
        }
        if not any(watch.next_poll <= now for watch in quiet.values()):
            return
        together: dict[Channel, list[str]] = {}
        for queue in quiet:
            for channel, _ in self._consumers_of(queue)[:1]:
                if channel.qos.can_consume():
                    together.setdefault(channel, []).append(queue)
        for channel, queues in together.items():
            if len(queues) > 1:  # one alone is taken from, at no more cost
                for queue, seconds in zip(queues, channel.poll(queues), strict=True):
                    quiet[queue].hot = seconds is None
                    quiet[queue].next_poll = now + min(seconds or 0.0, self._wakeups.poll_interval)

    def _in_order(self) -> list[str]:
        """The queues in the order in which to poll them now."""
        queues = list(self._watches)
        match self._session.settings.queue_order:
            case "sorted":
                queues.sort()
            case "round_robin" if queues:
                self._turn = (self._turn + 1) % len(queues)
                queues = queues[self._turn :] + queues[: self._turn]
        return queues

    def _take_guarded(self, queue: str, watch: Watch) -> None:
        """A queue that is damaged, or was written by a newer version, keeps no other from being served."""
        try:
            self._take(queue, watch)
        except CONNECTION_ERRORS:
            raise
        except (FerrymanError, redis.exceptions.ResponseError) as error:
            logger.error("queue %r can't be consumed now, trying again in %g s: %s", queue, RETRY_INTERVAL, error)
            watch.hot, watch.next_poll = False, time.monotonic() + RETRY_INTERVAL

    def _take(self, queue: str, watch: Watch) -> None:
        for channel, consumer in self._consumers_of(queue):
            room = channel.room(queue, consumer, self._ready)
            if not room or self._lingers(channel) or (self._ready and channel.qos.is_replaced):
                continue
            taken = channel.take(queue, room, consumer)
            if not taken.exists:
                channel.topology.redeclare(queue)
                continue
            if taken.has_unreported and consumer.worker is not None:
                self._ended_tasks.mark(queue, consumer.worker)
            watch.hot = len(taken.jobs) == room or taken.more
            quiet = min(max(taken.next_event_ms - taken.now, 0) / 1000, self._poll_interval(queue))
            watch.next_poll = time.monotonic() + quiet
            for delivery in taken.jobs:
                message = channel.decode(queue, delivery, consumer, taken.now)
                if message is not None:
                    self._ready.append(PendingDelivery(channel, consumer, message))
            if not watch.hot:
                return

    # Waiting

    def _poll_interval(self, queue: str) -> float:
        """Seconds after which a quiet queue is to be polled even though nothing has woken it."""
        if self._foreign_wakeups is not None and type(queue) is ForeignQueue:
            return self._foreign_wakeups.poll_interval
        return self._wakeups.poll_interval

    def _waited_for(self) -> frozenset[str]:
        """The quiet queues of ferryman's own on which a message could be handed out."""
        return frozenset(
            queue
            for queue, watch in self._watches.items()
            if not watch.hot
            and type(queue) is not ForeignQueue
            and any(channel.qos.can_consume() for channel, _ in self._consumers_of(queue))
        )

    def _start_waits(self) -> None:
        """Begins the blocking reads that are to be under way, unless they are."""
        self.fanout.wait()
        seconds = self._seconds_to_poll()
        self._wakeups.wait(self._waited_for(), seconds)
        if self._foreign_wakeups is not None:
            self._foreign_wakeups.wait(frozenset(queue for queue in self._watches if type(queue) is ForeignQueue), seconds)

    def _seconds_to_poll(self) -> float:
        """Seconds until a quiet queue should be polled in any case."""
        now = time.monotonic()
        times = [max(0.0, watch.next_poll - now) for watch in self._watches.values() if not watch.hot]
        if self._waits_for_a_process() or any(
            channel.qos.is_replaced and not channel.qos.can_consume() for channel in self._channels
        ):
            times.append(BUSY_INTERVAL)
        return min([*times, self._wakeups.poll_interval, self._dead_letters.seconds_left, self._ended_tasks.seconds_left])

    def _waits_for_a_process(self) -> bool:
        """Whether a worker has no process free for another system's jobs: nothing says when one is."""
        return self._foreign_wakeups is not None and any(
            watch.hot and type(queue) is ForeignQueue and any(consumer.worker for _, consumer in self._consumers_of(queue))
            for queue, watch in self._watches.items()
        )

    def _receive(self) -> None:
        """Reads what has arrived on the waiting connections. Raises connection errors."""
        if self._session.lapsed:
            raise LeaseLapsed
        if self._foreign_wakeups is not None:
            for queue in self._foreign_wakeups.woken():
                if queue in self._watches:
                    self._watches[queue].hot = True
        for queue in self._wakeups.woken():
            if queue in self._watches:
                self._watches[queue].hot = True
            if not any(channel.qos.can_consume() for channel, _ in self._consumers_of(queue)):
                self._wakeups.pass_on(queue)
        for broadcast in self.fanout.receive():
            self._broadcast(*broadcast)
        self.fanout.save()

    def _broadcast(self, queue: str, stream_id: bytes, frame: bytes) -> None:
        job_id = stream_id.decode("ascii", "replace")
        for channel, consumer in self._consumers_of(queue):
            try:
                found: Content = content(job_id, queue, {b"message": frame})
            except MalformedValue as error:
                logger.error("broadcast %s to queue %r is no message and is left out: %s", job_id, queue, error)
                return
            self._ready.append(PendingDelivery(channel, consumer, channel.message(found, queue, None, consumer)))
            return


def _nothing(*_: Any) -> None:
    """For file descriptors and timers whose only purpose is to end the loop's poll: ``tick`` does the work."""


assert socket.timeout is TimeoutError, "drain_events must raise what kombu's callers catch"
