"""Writing kombu: a Job to the Redis commands that store it as kombu 5.7 and Celery would.

A list knows no place but its two ends, and jobs come in any order. So messages are staged, by queue, and ``finish`` puts each
queue's into its lists, in the order of their places and to run before whatever stands there: consumers see a queue when it is
complete. Both may be sent again, for the same jobs or for newer versions of them. A job that never was a message becomes the
message of a Celery task: its name is the task, its payload the one argument. Called by ``family.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from attrs import evolve

from ...schema.errors import MalformedValue
from ...schema.family import Command, KeyFamily, Target
from ...schema.incompatibilities import error, warning
from ...schema.job import Job, State, replaced
from ...schema.native.record import Passthrough as NativePassthrough
from ...schema.native.scripts.waiting_score import ASCENDING
from ...schema.rule import Finding
from ...schema.text import is_json, is_unicode, show, to_bytes
from ...schema.totals import Totals
from ..generated import GeneratedJob
from ..scripts import script
from ..timestamps import parse_timestamp
from ..waiting_place import waiting_place
from .bindings import Bindings, default_bindings, register
from .keys import STEPS, USUAL, Settings, bucket_key, bucket_label, can_be_queue, layout, parse_bucket_label, step_of
from .passthrough import NAME, Passthrough, QueuedRecord, head_of, with_overflow
from .record import Message, Record, eta_text, task_of

_script = partial(script, __package__)

TO_RUN = frozenset({State.WAITING, State.SCHEDULED, State.ACTIVE})


# What kombu can't express


def incompatibilities(job: Job, settings: Settings = USUAL) -> Iterator[Finding]:
    """Errors for a job that kombu could not hold or Celery not run; warnings for what they would not act on."""
    if not job.id or not is_unicode(job.id):
        yield error(job, "KOMBU-W1", f"the id {show(job.id, 60)!r} can't be a delivery tag: it is empty, or not UTF-8")
    if not can_be_queue(job.queue, settings):
        yield error(
            job,
            "KOMBU-W2",
            f"kombu can't have a queue named {show(job.queue, 60)!r}: not UTF-8, with its separator in it, or a name of its own",
        )
    if job.state not in TO_RUN:
        yield error(job, "KOMBU-W3", f"a queue of kombu holds messages that are to be run: it has no place for {job.state} jobs")
    try:
        head, passthrough = head_of(job), Passthrough.of(job)
    except MalformedValue as reason:
        yield error(job, "KOMBU-W7", str(reason))
        return
    if head is None and (not job.name or not is_json(job.payload)):
        yield error(job, "KOMBU-W4", "a Celery task needs a name, and a payload that is JSON")
    if job.state is State.SCHEDULED and (job.due_at is None or eta_text(job.due_at) is None):
        yield error(job, "KOMBU-W5", "a scheduled job needs a due time in the years 1 to 9999")
    idle = [name for name in ("tags", "depends_on", "unique_key") if getattr(job, name)]
    if idle:
        yield warning(job, "KOMBU-W6", f"kept in the message, but without effect in Celery: {', '.join(idle)}")
    if passthrough.step is not None and passthrough.step not in settings.steps:
        steps = ",".join(map(str, settings.steps))
        yield warning(
            job,
            "KOMBU-W9",
            f"it stays in the priority bucket {passthrough.step}, which consumers with the priority_steps {steps} do not read; "
            "if the consumers of the target have this bucket, name their priority_steps in the target's URL",
        )
    if job.state is State.ACTIVE and not passthrough.held:
        yield warning(job, "KOMBU-W8", "no consumer of kombu holds this active job: it is written as waiting")


def expressed(job: Job, now_ms: int, settings: Settings = USUAL) -> Job:
    """In kombu a task that is due waits like any other, and a bucket is remembered only where the target's steps give another."""
    if job.state is State.SCHEDULED and job.due_at is not None and job.due_at <= now_ms:
        job = replaced(job, state=State.WAITING)
    own = job.extra.get(NAME, {})
    head = head_of(job) if own.get("step") is not None else None
    if head is None or Message(head, job.payload).step(settings.steps) != own["step"]:
        return job
    others = {name: value for name, value in own.items() if name != "step"}
    extra = {name: others if name == NAME else each for name, each in job.extra.items() if name != NAME or others}
    return replaced(job, extra=extra)


def _is_text(raw: bytes | None) -> bool:
    try:
        (raw or b"").decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


# A job's message


def message_for(job: Job, stored_step: int | None, now_ms: int, steps: Sequence[int] = STEPS) -> Message:
    """The message that brings the job to a worker. Raises MalformedValue for a job that ``incompatibilities`` refuses.

    ``stored_step``: the bucket in which kombu had it, if that was not the one of its priority.
    """
    head = head_of(job)
    message = _task_message(job, steps) if head is None else Message(head, job.payload)
    if not (message.is_plain and _is_text(job.payload)):
        message = message.in_base64()
    tag = message.properties.get("delivery_tag")
    if type(tag) not in (str, int) or str(tag) != job.id:
        message = message.with_properties(delivery_tag=job.id)
    match message.properties.get("delivery_info"):
        case {"exchange": str() | None as exchange, "routing_key": str() | None as key} if exchange or key == job.queue:
            pass
        case info:
            info = info if isinstance(info, dict) else {}
            message = message.with_properties(delivery_info={**info, "exchange": "", "routing_key": job.queue})
    if stored_step is None and not _keeps_priority(job) and step_of(job.rank, steps) != message.step(steps):
        # What ran in this order elsewhere must do so in kombu, also after it was given back.
        message = message.with_properties(priority=_priority(job, steps))
    due_at = parse_timestamp(task_of(message).get("eta"))
    if job.state is State.SCHEDULED and due_at != job.due_at:
        message = message.with_headers(eta=eta_text(job.due_at or 0))
    elif job.state is State.WAITING and due_at is not None and due_at > now_ms:
        # A job that waits is to be run now, whatever its message once said.
        message = message.with_headers(eta=None)
    return message


def _keeps_priority(job: Job) -> bool:
    """Whether a message has no other rank than its own priority.

    bee gives all jobs the rank 0. Only a queue that counts priorities the other way round contradicts that of the message.
    """
    is_from_bee = job.rank == 0 and head_of(job) is not None and NativePassthrough.of(job).order == ASCENDING
    return job.rank is None or is_from_bee


def _task_message(job: Job, steps: Sequence[int]) -> Message:
    """A Celery task message (protocol 2) for a job that never was a message."""
    headers = {
        "lang": "py",
        "task": job.name,
        "id": job.id,
        "shadow": None,
        "eta": None,
        "expires": None,
        "group": None,
        "group_index": None,
        "retries": job.attempts or 0,
        "timelimit": [None if job.ttl is None else _seconds(job.ttl), None],
        "root_id": job.id,
        "parent_id": None,
        "argsrepr": "(<payload>,)",
        "kwargsrepr": "{}",
        "origin": "ferryman",
        "ignore_result": False,
    }
    properties = {
        "correlation_id": job.id,
        "delivery_mode": 2,
        "delivery_info": {"exchange": "", "routing_key": job.queue},
        "priority": _priority(job, steps),
        "delivery_tag": job.id,
    }
    head = {"content-encoding": "utf-8", "content-type": "application/json", "headers": headers, "properties": properties}
    body = b"[[" + (job.payload or b"null") + b'],{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]'
    return Message(head, body)


def _priority(job: Job, steps: Sequence[int]) -> int:
    """0 runs first in kombu: a rank is a priority of kombu's, as far as it has as many."""
    return min(max(job.rank or 0, steps[0]), steps[-1])


def _seconds(milliseconds: int) -> int | float:
    return milliseconds // 1000 if milliseconds % 1000 == 0 else milliseconds / 1000


def record_for(job: Job, now_ms: int, settings: Settings = USUAL) -> QueuedRecord:
    """The message of a job in its queue. Raises MalformedValue for a job that ``incompatibilities`` refuses."""
    passthrough = Passthrough.of(job)
    held = job.state is State.ACTIVE and passthrough.held
    written = replaced(job, state=State.WAITING) if job.state is State.ACTIVE and not held else job
    message = message_for(written, passthrough.step, now_ms, settings.steps)
    step = message.step(settings.steps) if passthrough.step is None else passthrough.step
    since = passthrough.since if passthrough.since is not None or not held else now_ms / 1000
    record = Record(message, held, since if held else None)
    bindings = default_bindings(job.queue) if passthrough.bindings is None else passthrough.bindings
    text = passthrough.exact(record)
    queued = QueuedRecord(job.queue, record, text, step, now_ms, bindings, None, settings.steps, settings.visibility_ms)
    completed = with_overflow(written, queued)
    return queued if completed is record else evolve(queued, record=completed, text=passthrough.exact(completed))


# What is stored


def write(job: Job, target: Target, settings: Settings = USUAL) -> list[Command]:
    """The commands that store the job. Raises MalformedValue for a job that ``incompatibilities`` refuses."""
    queued = job.record if isinstance(job, GeneratedJob) else record_for(job, target.now_ms, settings)
    names, tag = layout(target.prefix, settings), to_bytes(job.id)
    staged, order = names.key("staged", queue=job.queue), names.key("staged_order", queue=job.queue)
    if queued.record.held:
        # Should an older version of the job be staged, it must not run as well.
        gone: list[Command] = [] if target.generated else [("HDEL", staged, tag), ("ZREM", order, tag)]
        taken: list[Command] = [
            ("ZADD", names.key("index"), repr(queued.record.since), tag),
            ("HSET", names.key("unacked"), tag, queued.text),
        ]
        return gone + taken
    step = queued.step if not isinstance(job, GeneratedJob) else queued.record.message.step(settings.steps)
    return [("HSET", staged, tag, b"%d\n%b" % (step, queued.text)), ("ZADD", order, waiting_place(job), tag)]


# What is done once


def tally_written(job: Job, totals: Totals) -> None:
    """Adds what ``finish`` needs: which buckets a queue has, and how it is bound."""
    KeyFamily.tally_written(job, totals)
    passthrough = Passthrough.of(job)
    step = passthrough.step if passthrough.step is not None else 0
    totals.name("buckets", [bucket_label(job.queue, step)])
    for binding in default_bindings(job.queue) if passthrough.bindings is None else passthrough.bindings:
        register(totals, binding.exchange, binding.member(job.queue))


def finish(target: Target, written: Totals, settings: Settings = USUAL) -> list[Command]:
    """Binds every queue as it was, or as Celery would, and puts what was staged into its lists."""
    names = layout(target.prefix, settings)
    commands: list[Command] = []
    for queue, bindings in Bindings.of(written).by_queue.items():
        for binding in bindings:
            for role in ("binding", "permanent"):
                commands.append(
                    ("SADD", names.key(role, exchange=binding.exchange), to_bytes(binding.member(queue, settings.separator)))
                )
    steps: dict[str, set[int]] = {}
    for label in written.names.get("buckets", ()):
        queue, step = parse_bucket_label(label)
        steps.setdefault(queue, set(settings.steps)).add(step)
    for queue in sorted(steps):
        order = sorted(steps[queue])
        keys = [names.key("staged", queue=queue), names.key("staged_order", queue=queue)]
        for step in order:
            keys += (bucket_key(target.prefix, queue, step, settings), names.key("staged_list", queue=queue, step=str(step)))
        commands.append(("EVAL", _script("queue"), len(keys), *keys, *order))
    return commands
