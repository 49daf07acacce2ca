"""What the history of a queue costs who consumes it: the rate with it beside the rate without, taken in turn on one server.

Both are the consume of ``consume.py``: takes and acks at a prefetch of 100, where the server has most to count at once.
"""

from __future__ import annotations

from attrs import frozen
from kombu import Connection

from ..brokers import FERRYMAN, Broker
from ..server import Server
from .consume import consume, fill
from .measure import Figure, Measure, Target

TIMED = 6000
ROUNDS = 4


@frozen
class _WithoutHistory(Broker):
    def connection(self, server: Server) -> Connection:
        return Connection(self.url(server), transport_options={"history": False})


WITHOUT = _WithoutHistory(FERRYMAN.scheme)


def _ratio(broker: Broker, server: Server) -> tuple[float, ...]:
    seconds = {broker: 0.0, WITHOUT: 0.0}
    for turn in range(2 * ROUNDS):
        which = (broker, WITHOUT)[(turn + turn // 2) % 2]
        with server.client() as client:
            client.flushall()
        fill(which, server, TIMED)
        seconds[which] += consume(which, server, TIMED)
    return (seconds[WITHOUT] / seconds[broker],)


HISTORY = Measure(
    "history",
    (Figure("consume and ack with history, of the rate without", "x", Target("value", 0.97, at_least=True)),),
    _ratio,
    has_rival=False,
)
