"""Consuming with acks from one connection at a prefetch of 100: messages a second, and commands that the client sends.

Commands are counted in a run of their own, so that counting does not slow what is timed: one EVALSHA is one command, as each
command of a MULTI is (``commands.py``).
"""

from __future__ import annotations

import time
from typing import Any

from ..brokers import QUEUE, Broker
from ..server import Server
from .commands import CommandCount
from .measure import Figure, Measure, at_most, ratio_at_least
from .messages import task_message

BODY = 500
PREFETCH = 100
TIMED = 3000
COUNTED = 1000


def fill(broker: Broker, server: Server, count: int) -> None:
    """Publishes that many messages."""
    message = task_message(BODY)
    with broker.connection(server) as connection, connection.Producer() as producer:
        producer.maybe_declare(QUEUE)
        for _ in range(count):
            message.publish(producer)


def consume(broker: Broker, server: Server, count: int) -> float:
    """Consumes and acks that many messages; gives the seconds."""
    left = count

    def done(_body: Any, message: Any) -> None:
        nonlocal left
        message.ack()
        left -= 1

    with broker.connection(server) as connection:
        channel = connection.channel()
        with channel.Consumer([QUEUE], callbacks=[done], accept=["json"], prefetch_count=PREFETCH):
            start = time.perf_counter()
            while left:
                connection.drain_events(timeout=10)
            return time.perf_counter() - start


def _speed(broker: Broker, server: Server) -> tuple[float, ...]:
    fill(broker, server, TIMED)
    return (TIMED / consume(broker, server, TIMED),)


def _commands(broker: Broker, server: Server) -> tuple[float, ...]:
    fill(broker, server, COUNTED)
    with CommandCount(server) as counted:
        consume(broker, server, COUNTED)
    return (counted.total / COUNTED,)


CONSUME = Measure("consume", (Figure("consume and ack, prefetch 100", "msg/s", ratio_at_least(8.0)),), _speed, has_floor=True)
COMMANDS = Measure("commands", (Figure("commands sent a message consumed and acked", "", at_most(0.5)),), _commands, repeats=1)
