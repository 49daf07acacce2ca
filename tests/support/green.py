"""A process whose greenlets consume and ack on one connection: ``python -m tests.support.green URL COUNT``."""

from gevent import monkey

monkey.patch_all()

import contextlib  # noqa: E402 - gevent comes first
import sys  # noqa: E402

import gevent  # noqa: E402
from kombu import Connection, Queue  # noqa: E402

KEEPS = 0.025
"""Seconds: so long an ack is not kept back by a callback."""


def main(url: str, count: int) -> None:
    """Publishes messages and consumes them all. Callbacks are so slow now and then that the renewer sends their acks."""
    acked: list[int] = []

    def ack(body: int, message) -> None:
        gevent.sleep(body % 7 / 1000)
        message.ack()
        acked.append(body)

    def begin(body: int, message) -> None:
        gevent.spawn(ack, body, message)
        if body % 10 == 0:
            gevent.sleep(KEEPS)

    queue = Queue("green")
    with Connection(url) as connection:
        with connection.Producer() as producer:
            for number in range(count):
                producer.publish(number, routing_key="green", declare=[queue])
        with connection.Consumer(queue, callbacks=[begin]) as consumer:
            consumer.qos(prefetch_count=50)
            while len(acked) < count:
                with contextlib.suppress(TimeoutError):
                    connection.drain_events(timeout=0.1)
                gevent.sleep()
    print("acked", sorted(acked) == list(range(count)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
