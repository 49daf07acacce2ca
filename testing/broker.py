"""TaskBroker: the broker of one test of a Celery app: what was enqueued, tasks run in the test itself, time that can be moved.

    def test_a_new_customer_gets_a_mail(ferryman_broker):
        ferryman_broker.use(app)
        sign_up("ann@example.com")
        ferryman_broker.assert_enqueued("shop.send_welcome", args=["ann@example.com"], queue="mail")
        ferryman_broker.drain()

Messages go through a real server and the real transport, so that a payload that can't be serialised, a route to the wrong queue,
an ETA or a dedup key do in the test what they do in production. Given by the fixture ``ferryman_broker`` (``pytest_plugin.py``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from attrs import evolve, field, frozen
from kombu.serialization import loads, prepare_accept_content

from ..schema.connection.address import Address
from ..schema.connection.connect import open_client
from ..schema.native.keys import QueueKeys, unescape
from ..schema.text import to_text
from ..transport.message import content
from .ageing import age
from .draining import Ran, ran

ANY: Any = object()
"""Stands for an argument that is not compared."""
MOST_TASKS = 1000
"""Tasks that one ``drain`` runs unless it is told otherwise: whoever enqueues itself again and again is found out."""


@frozen
class EnqueuedTask:
    """One message that nobody has taken yet."""

    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    queue: str
    id: str
    priority: int = 0
    due_at: datetime | None = None
    """When it may run (UTC), for one that is scheduled."""
    headers: Mapping[str, Any] = field(factory=dict, repr=False)
    """All of the message's headers."""

    def __str__(self) -> str:
        inner = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        due = "" if self.due_at is None else f", due {self.due_at.isoformat(timespec='seconds')}"
        return f"{self.name}({', '.join(inner)}) in {self.queue}{due}"


class TaskBroker:
    """The queues under one prefix of one server, for the length of a test."""

    def __init__(self, url: str, client: Any, prefix: str) -> None:
        self.url = url
        """What ``broker_url`` is set to."""
        self._client = client
        self._prefix = prefix
        self._apps = contextlib.ExitStack()
        self._app: Any = None

    def use(self, app: Any, *, result_backend: str | None = "cache+memory://") -> None:
        """Gives a Celery app this broker until the test ends.

        ``result_backend`` stands in for the app's own, which a test seldom has; None leaves that. Settings that would keep tasks
        from the broker (``task_always_eager``) are off.
        """
        self._app = app
        self._apps.enter_context(_configured(app, self.url, result_backend))

    def enqueued(self, task: Any = None, *, queue: str | None = None) -> list[EnqueuedTask]:
        """The tasks that wait, in the order in which they would run, and then those that are scheduled, by their time.

        ``task``: only this one, by its name or itself. ``queue``: only those of this queue.
        """
        name = _name(task)
        found = [each for each_queue in self._queues() if queue in (None, each_queue) for each in self._tasks(each_queue)]
        chosen = [each for each in found if name in (None, each.name)]
        return [each for each in chosen if each.due_at is None] + sorted(
            (each for each in chosen if each.due_at is not None), key=lambda each: (each.due_at, each.id)
        )

    def assert_enqueued(
        self,
        task: Any,
        args: Sequence[Any] = ANY,
        kwargs: Mapping[str, Any] = ANY,
        *,
        queue: str | None = None,
        priority: int | None = None,
        due_in: timedelta | float | None = None,
        within: timedelta | float = 5.0,
        times: int | None = None,
    ) -> EnqueuedTask:
        """Gives the first task that fits; fails with a list of what was enqueued if there is none.

        What is not given is not compared. ``due_in``: seconds until it may run, give or take ``within``. ``times``: that so many
        fit, exactly.
        """
        fitting = [each for each in self.enqueued(task, queue=queue) if _fits(each, args, kwargs, priority, due_in, within)]
        if (times is None and not fitting) or times not in (None, len(fitting)):
            wanted = "one or more" if times is None else str(times)
            raise AssertionError(f"{wanted} of {_name(task)} should be enqueued, {len(fitting)} are; {self._listing()}")
        return fitting[0] if fitting else EnqueuedTask(_name(task) or "", (), {}, queue or "", "")

    def assert_not_enqueued(
        self, task: Any = None, args: Sequence[Any] = ANY, kwargs: Mapping[str, Any] = ANY, *, queue: str | None = None
    ) -> None:
        """Fails if any task fits; without ``task``, if any task is enqueued at all."""
        for each in self.enqueued(task, queue=queue):
            if _fits(each, args, kwargs, None, None, 0.0):
                raise AssertionError(f"{each} should not be enqueued; {self._listing()}")

    def drain(self, *, queue: str | None = None, scheduled: bool = False, limit: int = MOST_TASKS) -> list[Ran]:
        """Runs the tasks that wait, and those that these enqueue, here and now, until none waits; gives what has run, in order.

        Routing, serialisation, retries, callbacks, chains and chords do what they do in a worker. ``scheduled``: time moves on to
        the next scheduled task when none waits. A task that fails for good raises its exception here, at once; what waits behind
        it stays. Raises AssertionError when tasks still wait after ``limit`` of them.
        """
        done: list[Ran] = []
        with self._used_app().connection_for_read() as connection:
            while True:
                each = next(filter(None, (ran(self._app, connection, name) for name in self._queues(queue))), None)
                if each is None and not (scheduled and self._move_to_next(queue)):
                    return done
                if each is not None:
                    done.append(each)
                    if each.error is not None:
                        raise each.error
                if len(done) > limit:
                    raise AssertionError(f"tasks are still enqueued after {limit} of them have run; {self._listing()}")

    def advance(self, by: timedelta | float) -> None:
        """Moves time on by so many seconds: scheduled tasks come due, and expiries, leases and dedup keys lapse.

        The clocks of server and app stay: all that the broker has stored becomes older instead, so that what is enqueued next is
        counted from now, as ever.
        """
        ms = round(_seconds(by) * 1000)
        if ms < 0:
            raise ValueError("time moves on, not back: give a positive number of seconds")
        for name in self._queues():
            age(self._client, QueueKeys(self._prefix, name), ms)

    def close(self) -> None:
        """Gives the apps their own brokers back, and deletes the test's keys."""
        self._apps.close()
        for key in self._client.scan_iter(match=f"{self._prefix}:*", count=1000):
            self._client.unlink(key)

    # Within

    def _used_app(self) -> Any:
        if self._app is None:
            raise AssertionError("say whose tasks these are: ferryman_broker.use(app)")
        return self._app

    def _queues(self, only: str | None = None) -> list[str]:
        """The queues that there are, by name."""
        begin, end = f"{self._prefix}:{{", "}:meta"
        keys = map(to_text, self._client.scan_iter(match=f"{begin}*{end}", count=1000))
        names = sorted(unescape(key[len(begin) : -len(end)]) for key in keys)
        return [name for name in names if only in (None, name)]

    def _tasks(self, queue: str) -> Iterator[EnqueuedTask]:
        keys = QueueKeys(self._prefix, queue)
        for job_id in map(to_text, self._client.zrange(keys.waiting, 0, -1)):
            yield self._task(keys, job_id, None)
        for job_id, due_ms in self._client.zrange(keys.scheduled, 0, -1, withscores=True):
            yield self._task(keys, to_text(job_id), datetime.fromtimestamp(due_ms / 1000, UTC))

    def _task(self, keys: QueueKeys, job_id: str, due_at: datetime | None) -> EnqueuedTask:
        message = content(job_id, keys.queue, self._client.hgetall(keys.job(job_id)))
        accept = prepare_accept_content(self._used_app().conf.accept_content)
        body = loads(message.body, message.content_type, message.content_encoding, accept=accept)
        args, kwargs = (body[0], body[1]) if isinstance(body, list | tuple) and len(body) == 3 else ((body,), {})
        headers, properties = message.headers, message.properties
        name, task_id = str(headers.get("task", "")), str(headers.get("id", job_id))
        return EnqueuedTask(name, tuple(args), kwargs, keys.queue, task_id, properties.get("priority") or 0, due_at, headers)

    def _move_to_next(self, queue: str | None) -> bool:
        """Moves time on to the next scheduled task. False: there is none."""
        dues = [each.due_at for each in self.enqueued(queue=queue) if each.due_at is not None]
        if dues:
            self.advance(max(0.0, (min(dues) - datetime.now(UTC)).total_seconds()) + 0.001)
        return bool(dues)

    def _listing(self) -> str:
        tasks = self.enqueued()
        return "\n  ".join(["enqueued are:", *map(str, tasks)]) if tasks else "nothing is enqueued"


def _fits(
    task: EnqueuedTask,
    args: Any,
    kwargs: Any,
    priority: int | None,
    due_in: timedelta | float | None,
    within: timedelta | float,
) -> bool:
    if args is not ANY and list(args) != list(task.args):
        return False
    if kwargs is not ANY and dict(kwargs) != dict(task.kwargs):
        return False
    if priority not in (None, task.priority):
        return False
    if due_in is None:
        return True
    left = 0.0 if task.due_at is None else (task.due_at - datetime.now(UTC)).total_seconds()
    return abs(left - _seconds(due_in)) <= _seconds(within)


def _seconds(span: timedelta | float) -> float:
    return span.total_seconds() if isinstance(span, timedelta) else float(span)


def _name(task: Any) -> str | None:
    return task if task is None or isinstance(task, str) else str(task.name)


@contextlib.contextmanager
def _configured(app: Any, url: str, result_backend: str | None) -> Iterator[None]:
    """The app with another broker for the length of the block; its connections are closed before and after."""
    changed: dict[str, Any] = {"broker_url": url, "broker_read_url": url, "broker_write_url": url, "task_always_eager": False}
    if result_backend is not None:
        changed["result_backend"] = result_backend
    before = {name: getattr(app.conf, name) for name in changed}
    backends = app._backend_cache, getattr(app._local, "backend", None)
    _disconnect(app)
    app.conf.update(changed)
    if result_backend is not None:
        _set_backends(app, None, None)
    try:
        yield
    finally:
        _disconnect(app)
        app.conf.update(before)
        if result_backend is not None:
            _set_backends(app, *backends)


def _disconnect(app: Any) -> None:
    app.close()
    app.amqp._producer_pool = None


def _set_backends(app: Any, cached: Any, local: Any) -> None:
    app._backend_cache = cached
    app._local.__dict__.pop("backend", None)
    if local is not None:
        app._local.backend = local


@contextlib.contextmanager
def open_broker(url: str, prefix: str) -> Iterator[TaskBroker]:
    """A broker at a ``ferryman://`` URL, of which all keys under ``prefix`` are gone with the block."""
    address = evolve(Address.parse(url), prefix=prefix)
    with open_client(address) as client:
        broker = TaskBroker(address.url(), client, prefix)
        try:
            yield broker
        finally:
            broker.close()
