"""Events of Celery as a monitor gets them."""

from __future__ import annotations

import contextlib
import threading


@contextlib.contextmanager
def events_of(app):
    """What a monitor of the app gets, beginning now, as a function that waits for so many events of a type."""
    received, come, ready = [], threading.Condition(), threading.Event()

    def note(event):
        with come:
            received.append(event)
            come.notify_all()

    def wait_for(kind, count):
        with come:
            assert come.wait_for(lambda: sum(each["type"] == kind for each in received) >= count, 60), received
            return [each for each in received if each["type"] == kind]

    def listen():
        with app.connection_for_read() as connection:
            receiver = app.events.Receiver(connection, handlers={"*": note})
            with receiver.consumer_context() as (consumed, *_):
                ready.set()
                while not done.is_set():
                    with contextlib.suppress(TimeoutError):
                        consumed.drain_events(timeout=0.2)

    done = threading.Event()
    thread = threading.Thread(target=listen)
    thread.start()
    assert ready.wait(60)
    try:
        yield wait_for
    finally:
        done.set()
        thread.join()
