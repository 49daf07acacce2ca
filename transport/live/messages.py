"""Messages: between the jobs of another system and Celery's task messages, both ways.

A job that the system made has a payload, which is what the task is called with. One that Celery published has besides, in
``extra``, all that Celery knows of it; and its payload is an envelope, ``{"task": …, "args": […], "kwargs": {…}}``, unless the
payload alone gives the same call back. Which task a name is and how a payload becomes arguments, the mapping says. Pure. Called
by ``keyspace.py``.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Collection, Mapping
from typing import Any

from attrs import frozen
from kombu.compression import decompress

from ...schema.errors import FerrymanError, MalformedValue, UsageError
from ...schema.live import ForeignDelivery, ForeignFamily, NewJob
from ...schema.native.scripts.publication import Publication
from ...schema.native.scripts.waiting_score import PriorityOrder
from ...schema.native.task_message import JSON_HEAD
from ...schema.text import load_json, load_loose_json, show
from ..message import DELAY, TYPE_MARK, UNIQUE_KEY, UNIQUE_TTL, Content, decode_kombu_type, encode_kombu_type
from .mapping import JobMapping, QueueMapping
from .whole_messages import CONSUMER, HEADER, content_of_message, payload_of_message

logger = logging.getLogger("ferryman.transport")

ENVELOPE = {"task", "args", "kwargs"}
"""The fields of an envelope, no more and no less."""
LIMIT = "ferryman_time_limit"
"""Property: how many seconds the system itself lets a run take. A task may have a shorter limit of its own."""
NO_CALLBACKS = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
NOT_KEPT = frozenset({HEADER, DELAY, "eta", "x-delivery-count", "compression"})
"""Headers that a job does not keep: each delivery gets them anew, or they have done their work."""
REPR_LENGTH = 1024
"""Characters of arguments that logs and monitors see, as Celery's own."""
LARGE = 64 << 10
"""Bytes of a payload that is not shown at all."""

_warned: set[str] = set()


@frozen
class JobMessages:
    """The messages of one keyspace."""

    family: ForeignFamily
    mapping: JobMapping
    priority_order: PriorityOrder

    # Jobs in: from a message that is published

    def check(self, headers: Mapping[str, Any], content_type: str | None, publication: Publication) -> None:
        """Raises UsageError for a task message that can't become a job, before anything of its batch is written."""
        family = self.family
        if publication.unique is not None or UNIQUE_TTL in headers:
            raise UsageError(f"the header {UNIQUE_KEY} means nothing to {family.name}: its jobs have no dedup keys")
        if family.carries_messages:
            return
        if content_type != JSON_HEAD["content-type"]:
            raise UsageError(
                f"{family.name} keeps jobs as JSON, and the message is {content_type}: publish it with serializer='json' "
                "(Celery: task_serializer)"
            )
        if not family.can_delay and _delay_ms(publication) > 0:
            raise UsageError(f"{family.name} can't hold a job until its time: publish it without countdown and eta")

    def new_job(self, queue: str, found: Content, publication: Publication, number: str) -> NewJob:
        """The job that a message becomes; ``number`` is its ``NewJob.publication``.

        Raises UsageError as ``check`` does, and for a body that is no task's.
        """
        self.check(found.headers, found.content_type, publication)
        priority = self._priority(found.properties.get("priority"))
        mapped = self.mapping.of(queue)
        if self.family.carries_messages:
            return NewJob(
                queue,
                _dump_ascii(payload_of_message(found, queue, priority)),
                name=found.headers.get("task"),
                priority=priority,
                delay_ms=_delay_ms(publication) if self.family.can_delay else 0,
                publication=number,
            )
        task = str(found.headers["task"])
        args, kwargs, embed = _body(found)
        direct = self._direct(queue, mapped, task, args, kwargs)
        envelope: Any = {"task": task, "args": args, "kwargs": kwargs}
        if self.family.arguments == "list":
            envelope = [envelope]
        return NewJob(
            queue,
            _dump(envelope if direct is None else direct[0]),
            name=next(iter(mapped.names_of(task)), task) if self.family.has_names else None,
            extra=_extra(task, found, embed),
            priority=priority,
            delay_ms=_delay_ms(publication),
            id=self._id(found.headers.get("id")),
            publication=number,
            options=self._options(mapped, found),
        )

    def _options(self, mapped: QueueMapping, found: Content) -> Mapping[str, Any]:
        """Those of the mapping, and the task's hard time limit where the system has one for a run."""
        hard, _ = _time_limits(found.headers.get("timelimit"), None)
        if self.family.time_limit_option is None or not isinstance(hard, int | float) or hard <= 0:
            return mapped.options
        return {**mapped.options, self.family.time_limit_option: round(hard * 1000)}

    def _direct(self, queue: str, mapped: QueueMapping, task: str, args: list[Any], kwargs: dict[str, Any]) -> tuple[Any] | None:
        """The payload that gives this very call back when it is read; None where only an envelope does."""
        name = next(iter(mapped.names_of(task)), None) if self.family.has_names else queue
        if name is None or mapped.task_of(name) != task:
            return None
        value: Any
        if callable(mapped.args):
            write = getattr(mapped.args, "payload", None)
            if write is None:
                return None
            try:
                value = write(args, kwargs)
            except Exception as error:
                raise UsageError(f"the mapping's function can't make a payload for task {task!r}: {error!r}") from error
        elif mapped.args == "kwargs":
            if args:
                return None
            value = [kwargs] if self.family.arguments == "list" else kwargs
        elif kwargs:
            return None
        elif self.family.arguments == "list":
            value = args
        elif len(args) != 1:
            return None
        else:
            value = args[0]
        if self.family.arguments == "object" and not isinstance(value, dict):
            return None
        return None if self._envelope(value) else (value,)

    def _envelope(self, value: Any) -> dict[str, Any] | None:
        """A payload that is an envelope, to which a system whose payloads are objects may have added fields of its own."""
        if self.family.arguments == "list" and isinstance(value, list) and len(value) == 1:
            (value,) = value
        if not isinstance(value, dict) or not value.keys() >= ENVELOPE:
            return None
        if self.family.arguments != "object" and value.keys() != ENVELOPE:
            return None
        task, args, kwargs = value["task"], value["args"], value["kwargs"]
        return value if isinstance(task, str) and isinstance(args, list) and isinstance(kwargs, dict) else None

    def _id(self, task_id: Any) -> str | None:
        """The id to give to a task's job; None: as the system makes them."""
        return task_id if self.family.takes_ids and isinstance(task_id, str) and task_id else None

    def _priority(self, given: Any) -> float | None:
        """Celery's priority as the system's own number; None for the system's default."""
        try:
            number = None if given is None else int(given)
        except (OverflowError, TypeError, ValueError):
            return None
        if number and not self.family.priority_direction and not self.family.carries_messages:
            warn_once(f"{self.family.name} runs jobs in the order in which they came: priorities are ignored")
        return None if number is None else self._turned(number)

    def _turned(self, number: float) -> float:
        """A priority from Celery's side to the system's, and back: the order of runs is the same on both."""
        if self.family.carries_messages or not self.family.priority_direction:
            return number
        lower_first = self.priority_order == "ascending"
        return number if lower_first == (self.family.priority_direction == 1) else -number

    # Jobs out: to a message that is delivered

    def content(self, queue: str, job: ForeignDelivery, consumer: str, tasks: Collection[str] | None) -> Content:
        """The task message of a job just taken. ``tasks``: those that its consumer knows; None: any.

        Raises MalformedValue when payload or extra have not the form that they promise.
        """
        mark = {
            "family": self.family.name,
            "prefix": self.family.prefix,
            "queue": queue,
            "id": job.id,
            "attempts": job.attempts,
            "max_attempts": job.max_attempts,
        }
        if self.family.carries_messages:
            return content_of_message(job, mark, consumer)
        extra = _read_extra(job)
        headers, properties, embed = (_object(job, extra, name) for name in ("headers", "properties", "embed"))
        task, args, kwargs = self._call(queue, job, extra.get("task"), tasks)
        job_id = f"{self.family.prefix}:{job.id}" if self.family.prefix else job.id
        task_id = extra["id"] if isinstance(extra.get("id"), str) else job_id
        try:
            body = _dump([args, kwargs, {**NO_CALLBACKS, **embed}])
        except UsageError as error:  # what the mapping's function has made
            raise MalformedValue(f"job {job.id!r}: {error}") from error
        return Content(
            body,
            JSON_HEAD["content-type"],
            JSON_HEAD["content-encoding"],
            {
                "lang": "py",
                "root_id": task_id,
                "parent_id": None,
                "group": None,
                "expires": None,
                "shadow": None,
                **({} if "argsrepr" in headers else _reprs(job, args, kwargs)),
                "origin": self.family.name,
                "ignore_result": False,
                **headers,
                "task": task,
                "id": task_id,
                "eta": None,
                "retries": job.attempts,
                "timelimit": _time_limits(headers.get("timelimit"), job.time_limit_ms),
                HEADER: mark,
            },
            {
                "correlation_id": task_id,
                **({"priority": int(self._turned(job.priority))} if self.family.priority_direction else {}),
                **properties,
                "delivery_info": {"exchange": "", "routing_key": queue},
                CONSUMER: consumer,
                **({LIMIT: job.time_limit_ms / 1000} if job.time_limit_ms is not None else {}),
            },
        )

    def _call(
        self, queue: str, job: ForeignDelivery, given: Any, tasks: Collection[str] | None
    ) -> tuple[str, list[Any], dict[str, Any]]:
        """The task of a job, and what it is called with. ``given``: the task that Celery published it for."""
        payload = _python_value(job.payload) if self.family.arguments == "object" else load_json(job.payload)
        envelope = self._envelope(payload)
        if envelope is not None:
            task = envelope["task"]
            is_plain = given is None and self.family.arguments != "object"
            if task == given or (is_plain and (tasks is None or task in tasks)):
                return task, envelope["args"], envelope["kwargs"]
        mapped = self.mapping.of(queue)
        name = job.name if self.family.has_names and job.name is not None else queue
        task = given if isinstance(given, str) else mapped.task_of(name)
        if callable(mapped.args):
            return task, *_by_function(job, mapped.args, payload)
        if mapped.args == "kwargs":
            if self.family.arguments == "list" and isinstance(payload, list) and len(payload) == 1:
                (payload,) = payload
            if not isinstance(payload, dict):
                raise MalformedValue(f"job {job.id!r} has a payload that is no JSON object: {show(job.payload)}")
            return task, [], payload
        if self.family.arguments == "list":
            return task, payload if isinstance(payload, list) else [payload] if payload else [], {}
        return task, [payload], {}


def _python_value(raw: bytes) -> Any:
    """A payload's value for a system that is written in Python: NaN and infinity are numbers."""
    try:
        return load_json(raw)
    except MalformedValue as error:
        try:
            raw.decode("utf-8")
        except UnicodeDecodeError:
            raise error from None
        return load_loose_json(raw)


def _by_function(job: ForeignDelivery, function: Any, payload: Any) -> tuple[list[Any], dict[str, Any]]:
    """What the mapping's function makes of a payload."""
    try:
        args, kwargs = function(payload)
        return list(args), dict(kwargs)
    except Exception as error:
        raise MalformedValue(f"job {job.id!r}: the mapping's function can't read its payload: {error!r}") from error


def _body(found: Content) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """What a task is called with, and its callbacks. Raises UsageError for a body that is no task's."""
    compression = found.headers.get("compression")
    try:
        raw = decompress(found.body, compression) if compression else found.body
        args, kwargs, embed = load_json(raw)
        return list(args), dict(kwargs), dict(embed or {})
    except (FerrymanError, LookupError, TypeError, ValueError) as error:
        raise UsageError(f"the message of task {found.headers.get('task')!r} can't become a job: {error}") from None


def _extra(task: str, found: Content, embed: Mapping[str, Any]) -> bytes:
    """All that Celery knows of a task beside its call."""
    properties = {name: value for name, value in found.properties.items() if name in ("reply_to", "correlation_id", "expiration")}
    extra: dict[str, Any] = {
        "task": task,
        "id": found.headers.get("id"),
        "headers": {
            name: value
            for name, value in found.headers.items()
            if value is not None and name not in NOT_KEPT and name not in ("task", "id", "retries")
        },
        "properties": {name: value for name, value in properties.items() if value is not None},
        "embed": {name: value for name, value in embed.items() if value is not None},
    }
    return _dump({name: value for name, value in extra.items() if value})


def _read_extra(job: ForeignDelivery) -> dict[str, Any]:
    if job.extra is None:
        return {}
    extra = json.loads(job.extra, object_hook=decode_kombu_type if TYPE_MARK in job.extra else None)
    return extra if isinstance(extra, dict) else {}


def _object(job: ForeignDelivery, extra: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = extra.get(name) or {}
    if not isinstance(found, dict):
        raise MalformedValue(f"job {job.id!r} has {name} beside it that are no JSON object")
    return found


def _time_limits(given: Any, limit_ms: int | None) -> list[Any]:
    """``[hard, soft]`` in s: a run may take no longer than the system allows, whatever the message says."""
    hard, soft = given if isinstance(given, list) and len(given) == 2 else (None, None)
    if limit_ms is not None:
        limit = limit_ms / 1000
        hard = min(hard, limit) if isinstance(hard, int | float) and hard > 0 else limit
    return [hard, soft]


def _delay_ms(publication: Publication) -> int:
    """In how long a message may be delivered, by this machine's clock."""
    if publication.delay_ms is not None:
        return max(0, publication.delay_ms)
    return 0 if publication.due_ms is None else max(0, publication.due_ms - round(time.time() * 1000))


def _dump(value: Any) -> bytes:
    """JSON as JavaScript writes it: no spaces, letters as they are."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=encode_kombu_type)
        return text.encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8 form, but JSON can escape it
        return json.dumps(value, separators=(",", ":"), default=encode_kombu_type).encode("ascii")
    except (TypeError, ValueError) as error:
        raise UsageError(f"the message is no plain JSON data: {error}") from error


def _dump_ascii(value: Any) -> bytes:
    """JSON as Python writes it."""
    try:
        return json.dumps(value, default=encode_kombu_type).encode("ascii")
    except (TypeError, ValueError) as error:
        raise UsageError(f"the message is no plain JSON data: {error}") from error


def _reprs(job: ForeignDelivery, args: list[Any], kwargs: dict[str, Any]) -> dict[str, str]:
    """What logs and monitors see of the arguments."""
    if len(job.payload) > LARGE:
        return {"argsrepr": f"(<{len(job.payload)} bytes>,)", "kwargsrepr": "{}"}
    return {"argsrepr": _repr(tuple(args)), "kwargsrepr": _repr(kwargs)}


def _repr(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= REPR_LENGTH else text[: REPR_LENGTH - 3] + "..."


def warn_once(text: str) -> None:
    """Says something once for each process."""
    if text not in _warned:
        _warned.add(text)
        logger.warning("%s", text)
