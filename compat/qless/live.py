"""qless and reqless in use: their transitions as calls, for ferryman's consumers and producers beside the original's own.

The theory. All logic of qless is one Lua script that every client brings along; what it writes is a function of the keys, the
command and the caller's clock. So ours, ``lua/*.lua``, write the same keys for the same commands, and neither side notices the
other. A consumer is a worker of qless under its own name. What it holds is locked in qless itself: the lock lasts for the
queue's heartbeat (and the consumer's lease at least), a lost lock is announced, may still be renewed for the grace period, and
then an attempt is gone. So nothing of ours stands beside the keyspace but who consumes from which queue, and each producer's last
publication. ``purge`` leaves jobs for which others wait: qless cancels them only together.

Three cores are served, which write some things differently; the scripts tell from the jobs of a keyspace which one works on it:

| core | |
|---|---|
| ``unified`` | qless-py 0.10 to 0.11.4, August 2013 |
| ``final`` | qless-core of late 2013 to 2024: histories are cut, jobs out of attempts are counted, delays survive dependencies |
| ``reqless`` | reqless 0.13: the same, and throttles |

Where no job tells, it is ``unified``; ``core=`` in the URL says it. Sources: ``formats/qless.md``, sections 2 to 6.
Called by the transport and by ``client.py``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Literal
from uuid import uuid4

from ...schema.connection.call import Argument, Call
from ...schema.errors import KeyspaceRefused, MalformedValue, UsageError
from ...schema.live import Failure, ForeignDelivery, NewJob, Outcome
from ...schema.native.keys import DEFAULT_PREFIX
from ...schema.native.scripts.publication import check_name
from ...schema.native.scripts.results import Removed, Renewed, Role, removed
from ...schema.text import load_json, show, to_bytes, to_text
from .. import lua_json
from ..live import Retry, ScriptedFamily, outcome, texts
from ..numbers import parse_int, parse_number
from .core import Core

PREFIX = "ql"

OPTIONS = frozenset({"attempts", "retries", "tags", "depends", "throttles", "worker", "move"})


class QlessLive(ScriptedFamily):
    """The transitions of one keyspace of qless or reqless."""

    name: ClassVar[str] = "qless"
    priority_direction: ClassVar[Literal[-1, 0, 1]] = -1
    can_delay: ClassVar[bool] = True
    has_names: ClassVar[bool] = True
    takes_ids: ClassVar[bool] = True
    shortest_lease_ms: ClassVar[int] = 0

    def __init__(self, prefix: str = PREFIX, side_prefix: str = DEFAULT_PREFIX, core: Core = "") -> None:
        if prefix != PREFIX:
            raise UsageError(f"qless has no other prefix than {PREFIX!r}: leave prefix={prefix!r} out")
        self.prefix = prefix
        self.core = core
        self.side_prefix = side_prefix

    @property
    def fixed(self) -> tuple[Argument, ...]:
        return (self.core,)

    # Before the first write

    def look(self) -> Call[None]:
        return self.on_keyspace("look", None, (), self._check)

    def _check(self, reply: Any) -> None:
        server, strange, jobs = reply
        if server == b"slave":
            raise KeyspaceRefused("this server is a replica: give the address of its primary")
        if strange:
            key, kind = show(strange[0], 80), strange[1].decode()
            raise KeyspaceRefused(
                f"{key!r} ({kind}) is no key of qless: another system uses the prefix {self.prefix!r} in this database; "
                "move its keys to another database"
            )
        examples = {kind.decode(): to_text(job_id) for kind, job_id in zip(jobs[::2], jobs[1::2], strict=True)}
        if "early" in examples:
            raise KeyspaceRefused(
                f"job {examples['early']!r} was written by qless of 2012 (0.9), which is not served: migrate this keyspace"
            )
        if "reqless" in examples and examples.keys() & {"unified", "final"} and not self.core:
            other = examples.get("unified", examples.get("final"))
            raise KeyspaceRefused(
                f"job {examples['reqless']!r} was written by reqless and job {other!r} by qless: they must not work on one "
                "keyspace at the same time. If only one still does, say which: core=reqless, or core=final for qless"
            )

    # Jobs in

    def put(self, job: NewJob, *, now: int | None = None) -> Call[str]:
        """``options``: ``attempts`` or ``retries`` (one less; 5), ``tags``, ``depends`` (ids), ``throttles``, ``worker`` (who
        puts it), ``move`` (False: leave a job of the same id alone where it is not over; the default for publications).

        A job of the same id is put anew, wherever it stands, as qless does.
        """
        unknown = job.options.keys() - OPTIONS
        if unknown:
            raise UsageError(f"qless has no option {min(unknown)!r} for a job: it has {', '.join(sorted(OPTIONS))}")
        moves = job.options.get("move", job.publication is None)
        args: tuple[Argument, ...] = (
            to_bytes(check_name(job.id, "id")) if job.id is not None else uuid4().hex,
            "move" if moves else "beside",
            to_bytes(job.options.get("worker", "")),
            to_bytes(job.queue if job.name is None else job.name),
            check_data(job.payload),
            max(job.delay_ms, 0) / 1000,
            number(job.priority, "priority"),
            name_list(job.options.get("tags"), "tags"),
            _retries(job.options),
            name_list(job.options.get("depends"), "depends"),
            name_list(job.options.get("throttles"), "throttles"),
            job.publication or "",
            job.extra or "",
        )
        return self.on_queue("put", job.queue, now, args, _put)

    # Consuming

    def _delivery(self, queue: str, *job: Any) -> ForeignDelivery:
        return delivery(queue, *job)

    def complete(
        self, queue: str, consumer: str, results: Sequence[tuple[str, bytes | None]], *, now: int | None = None
    ) -> Call[tuple[Outcome, ...]]:
        """qless keeps no results."""
        return self.advance(queue, consumer, [(job_id, None) for job_id, _ in results], now=now)

    def advance(
        self,
        queue: str,
        consumer: str,
        jobs: Sequence[tuple[str, bytes | None]],
        *,
        next_queue: str = "",
        delay_ms: int = 0,
        depends: Collection[str] = (),
        now: int | None = None,
    ) -> Call[tuple[Outcome, ...]]:
        """Ends jobs that are done, each with new data if it has some, or sends them to their next queue."""
        pairs = [part for job_id, data in jobs for part in (to_bytes(job_id), data or b"")]
        args = (to_bytes(next_queue), delay_ms / 1000, name_list(depends or None, "depends"), *pairs)
        return self.by_consumer("complete", queue, consumer, now, args, lambda reply: tuple(_OUTCOMES[state] for state in reply))

    def fail(
        self, queue: str, consumer: str, job_id: str, failure: Failure, *, data: bytes | None = None, now: int | None = None
    ) -> Call[Outcome]:
        """Raising is final in qless: its own workers end a job so, under ``<queue>-<exception>``."""
        args = (to_bytes(job_id), _group(queue, failure), to_bytes(failure.text), data or b"")
        return self.by_consumer("fail", queue, consumer, now, args, outcome)

    def _end_attempt(
        self, queue: str, consumer: str, job_id: str, failure: Failure, retry: Retry | None, now: int | None
    ) -> Call[Outcome]:
        """End an attempt. A retry with a failure of the group '' leaves the failure of the attempt before.

        A job without an attempt left fails in the group that the failure names, or else as in qless: ``failed-retries-<queue>``.
        """
        if retry is None:
            return self.fail(queue, consumer, job_id, failure, now=now)
        data = b"" if retry.payload is None else check_data(retry.payload)
        failed = (_group(queue, failure), to_bytes(failure.text))
        args = (to_bytes(job_id), retry.delay_ms / 1000, *failed, data, retry.extra or b"", int(failure.group is not None))
        return self.by_consumer("retry", queue, consumer, now, args, lambda reply: _OUTCOMES[reply[0]])

    def _progress(self, current: float, total: float, data: bytes | None) -> tuple[Argument, ...]:
        """Stands in the history, where clients of qless log what they like."""
        about: dict[str, Any] = {"current": current, "total": total}
        if data is not None:
            about["data"] = load_json(data)
        return (json.dumps(about),)

    def renew(self, queue: str, consumer: str, lease_ms: int, *, now: int | None = None) -> Call[Renewed]:
        """Heartbeats of all that the consumer runs. Locks are lost one by one: ``held`` tells what it has left."""
        return self.by_consumer("renew", queue, consumer, now, (lease_ms,), lambda _: Renewed.DONE)

    def heartbeat(
        self,
        queue: str,
        consumer: str,
        jobs: Sequence[tuple[str, bytes | None]],
        *,
        lease_ms: int = 0,
        now: int | None = None,
    ) -> Call[tuple[float, tuple[str, ...]]]:
        """Heartbeats of some jobs, each with new data if it has some: until when (s), and which it still runs."""
        pairs = [part for job_id, data in jobs for part in (to_bytes(job_id), data or b"")]
        return self.by_consumer("renew", queue, consumer, now, (lease_ms, *pairs), _renewed)

    def remove(self, queue: str, job_id: str, only: Role | None = None, *, now: int | None = None) -> Call[Removed | None]:
        """A job for which others wait can't be cancelled: it fails, in the group ``<queue>-revoked``, and they go on waiting."""
        args = (only or "", "1", to_bytes(job_id))
        return self.on_queue("remove", queue, now, args, lambda reply: roles(reply)[0])

    # The system's own clockwork

    def timers(self, *, delivery_limit: int | None = None, now: int | None = None) -> Sequence[Call[Any]]:
        return [self.on_keyspace("timers", now, (), bool)]

    def signals(self, queue: str) -> tuple[bytes, ...]:
        start = self.keys[1] + b"q:" + to_bytes(queue)
        return (start + b"-work", start + b"-scheduled", start + b"-recur")

    def schedules(self, queue: str) -> tuple[bytes, ...]:
        return (self.keys[1] + b"q:" + to_bytes(queue) + b"-scheduled", self.keys[1] + b"paused_queues")


_OUTCOMES: Mapping[bytes, Outcome] = {
    b"complete": "completed",
    b"waiting": "waiting",
    b"depends": "waiting",
    b"scheduled": "scheduled",
    b"failed": "failed",
    b"": "lost",
}


# Arguments


def check_data(data: bytes) -> bytes:
    """Data as qless takes it. Raises UsageError for ``false`` and for what is no JSON."""
    if data.strip() == b"false":
        raise UsageError("qless takes no job whose data is false: put it into a list or an object")
    if not lua_json.is_json(data, loose=True):
        raise UsageError("the data of a qless job must be JSON")
    return data


def number(value: float | None, what: str) -> Argument:
    if value is None:
        return ""
    if not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"{what} {value!r} is no finite number")
    return repr(value)


def _retries(options: Mapping[str, Any]) -> Argument:
    attempts, retries = options.get("attempts"), options.get("retries")
    if attempts is not None:
        retries = attempts - 1
    if retries is None:
        return ""
    if not isinstance(retries, int) or retries < 0:
        raise UsageError(f"retries {retries!r} must be a whole number, 0 or more")
    return retries


def name_list(names: Any, what: str) -> Argument:
    """A list of names as JSON; '' for None."""
    if names is None:
        return ""
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise UsageError(f"{what} must be a list of texts")
    return json.dumps(list(names), ensure_ascii=False).encode("utf-8", "surrogateescape")


def _group(queue: str, failure: Failure) -> bytes:
    return to_bytes(failure.group if failure.group is not None else f"{queue}-{failure.exception}")


# Replies


def _put(reply: Any) -> str:
    if reply == [b"both"]:
        raise UsageError("qless-py 0.11 takes no delay together with dependencies: leave one out")
    if reply == [b"missing"]:
        raise UsageError("there is no such job to put again")
    return to_text(reply)


def delivery(queue: str, job_id: bytes, flat: Sequence[bytes]) -> ForeignDelivery:
    """A job that a worker has begun, or that is to come, from its record."""
    fields = dict(zip(flat[::2], flat[1::2], strict=True))
    retries, remaining = parse_int(fields.get(b"retries")), parse_int(fields.get(b"remaining"))
    attempts = 0 if retries is None or remaining is None else max(0, retries - remaining)
    priority = parse_number(fields.get(b"priority"))
    return ForeignDelivery(
        id=to_text(job_id),
        score=0,
        priority=round(priority) if priority is not None and math.isfinite(priority) else 0,
        deliveries=attempts + 1,
        fields=fields,
        queue=queue,
        name=to_text(fields.get(b"klass", b"")) or None,
        payload=_arguments_kept(fields.get(b"data", b"null")),
        extra=_extra(fields.get(b"ferryman")),
        attempts=attempts,
        max_attempts=None if retries is None else retries + 1,
    )


def _arguments_kept(data: bytes) -> bytes:
    """Data as it was put: where a worker of qless has renewed or failed a job, an empty list of arguments is an object."""
    if b'"args":{}' not in data:
        return data
    try:
        value = load_json(data)
    except MalformedValue:
        return data
    if not isinstance(value, dict) or value.keys() != {"task", "args", "kwargs"} or value["args"] != {}:
        return data
    return json.dumps({**value, "args": []}).encode()


def _extra(raw: bytes | None) -> bytes | None:
    """What Celery knows of a job; None for what else may stand in that field."""
    try:
        value = None if raw is None else load_json(raw)
    except MalformedValue:
        return None
    return raw if isinstance(value, dict) and "task" in value else None


def _renewed(reply: Any) -> tuple[float, tuple[str, ...]]:
    return float(reply[0]), texts(reply[1])


def roles(reply: Any) -> tuple[Removed | None, ...]:
    """Where cancelled jobs were."""
    if reply[0] == b"depended":
        job, other = map(to_text, reply[1:])
        raise UsageError(f"job {other!r} waits for job {job!r}: cancel both in one call, or take the dependency away first")
    return tuple(map(removed, reply))
