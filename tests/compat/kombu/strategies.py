"""What hypothesis draws for kombu: keys of any content, messages of many kinds, and jobs that kombu can hold."""

from __future__ import annotations

import base64
import json
from typing import Any

from ferryman.compat.kombu.keys import can_be_queue
from ferryman.compat.timestamps import EPOCH, MILLISECOND
from ferryman.schema.fact import Entry
from ferryman.schema.job import Job, State
from ferryman.schema.native import codec
from ferryman.schema.text import is_unicode
from hypothesis import strategies as st

from ...support.strategies import extra_values, json_texts, lines, whole_numbers
from .messages import NOW, text

LONG_AGO, FAR_AHEAD = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999 in Unix milliseconds."""

tags = st.one_of(st.sampled_from(["tag-1", "tag-2", "5"]), st.text(min_size=1, max_size=6).filter(is_unicode))
queues = st.one_of(
    st.sampled_from(["celery", "emails 1", "video:hd", "häppy-1", "a.b", "*?[x]", "line\nbreak"]),
    st.text(min_size=1, max_size=6).filter(can_be_queue),
)
etas = st.one_of(
    st.none(),
    st.integers(LONG_AGO, FAR_AHEAD).map(lambda parse_timestamp: (EPOCH + parse_timestamp * MILLISECOND).isoformat()),
    st.sampled_from(["soon", "2031-01-02T03:04:05.123456+05:30", "2031-01-02", 5]),
)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), whole_numbers, st.floats(allow_nan=False, allow_infinity=False), lines),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(lines, inner, max_size=3)),
    max_leaves=5,
)
bodies = st.one_of(json_texts, st.binary(max_size=12))


@st.composite
def heads(draw: st.DrawFn, tag: str, queue: str) -> dict[str, Any]:
    """All of a message but its body, as Celery and other publishers of many kinds may have sent it."""
    headers: dict[str, Any] | None = draw(st.one_of(st.none(), st.dictionaries(lines, json_values, max_size=3)))
    if draw(st.booleans()):
        headers = {
            **(headers or {}),
            "task": draw(lines),
            "id": draw(lines),
            "eta": draw(etas),
            "retries": draw(st.integers(0, 30)),
            "timelimit": draw(st.sampled_from([[None, None], [300, None], [1.5, 1], None])),
        }
    exchange = draw(st.sampled_from(["", "", "news"]))
    properties: dict[str, Any] = draw(st.dictionaries(st.sampled_from(["reply_to", "expiration", "x"]), json_values, max_size=2))
    properties["delivery_info"] = {"exchange": exchange, "routing_key": draw(lines) if exchange else queue}
    priorities = st.one_of(st.none(), st.integers(-3, 12), st.sampled_from(["5", 2.5]), whole_numbers)
    properties["priority"] = draw(priorities)
    if draw(st.integers(0, 4)) == 0:
        properties["body_encoding"] = draw(st.sampled_from(["base64", "utf-8", "UTF-8", None, "rot13", 5]))
    properties["delivery_tag"] = int(tag) if tag == "5" and draw(st.booleans()) else tag
    encoding = {"content-encoding": draw(st.sampled_from(["utf-8", "binary", None]))}
    return {**encoding, "content-type": draw(st.sampled_from(["application/json", "x", None])), "headers": headers} | {
        "properties": properties
    }


@st.composite
def messages(draw: st.DrawFn, queue: str | None = None) -> dict[str, Any]:
    """A whole message: mostly sound, with the body in base64 or plain."""
    tag, queue = draw(tags), draw(queues) if queue is None else queue
    head = draw(heads(tag, queue))
    body = draw(bodies)
    properties = head["properties"]
    properties.pop("body_encoding", None)
    if draw(st.booleans()):
        head["properties"] = {**properties, "body_encoding": "base64", "delivery_tag": properties["delivery_tag"]}
        return {"body": base64.b64encode(body).decode(), **head}
    if draw(st.booleans()):
        properties["body_encoding"] = "utf-8"
    return {**head, "body": draw(st.one_of(st.none(), lines))}


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """A list entry: a message in some spelling of JSON, one with something missing, or anything else."""
    value: Any = draw(messages())
    for _ in range(draw(st.sampled_from([0, 0, 1]))):
        part = draw(st.sampled_from(["body", "headers", "properties", "delivery_tag", "delivery_info", "body_encoding"]))
        where = value if part in value else value.get("properties", {})
        where[part] = draw(json_values)
    spelled = draw(
        st.sampled_from(
            [
                text(value),
                json.dumps(value, separators=(",", ":")).encode(),
                json.dumps([value, "", "celery"]).encode(),
                text(value)[:-3],
            ]
        )
    )
    return draw(st.one_of(st.just(spelled), st.binary(max_size=10), st.sampled_from([b"[" * 10_000, b"{}", b"null", b"1e999"])))


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """Any key that a database with kombu in it could hold, and many that it could not."""
    names = [
        *("celery", "emails 1", "celery\x06\x163", "emails 1\x06\x16-4", "celery\x06\x160", "app1:celery", "mine", "unacked"),
        *("unacked_index", "unacked_mutex", "_kombu.binding.celery", "_kombu.binding.", "_kombu.binding_permanent.x"),
        *("_kombu.binding_deadlines", "_ferryman.staged.q", "x.reply.celery.pidbox", "celeryev.1"),
    ]
    name = draw(st.sampled_from(names)).encode()
    key = draw(st.one_of(st.just(name), st.just(b"app1:" + name), st.binary(max_size=8)))
    redis_type = draw(st.sampled_from(["string", "list", "list", "set", "zset", "hash", "hash", "stream"]))
    ttl_ms = draw(st.one_of(st.none(), st.integers(0, 2**50)))
    return Entry(key, redis_type, draw(_value(redis_type)), ttl_ms, draw(st.sampled_from([0, 1000])))


def _value(redis_type: str) -> st.SearchStrategy[Any]:
    members = st.one_of(tags.map(_raw), st.binary(max_size=8), st.sampled_from([b"a\x06\x16b\x06\x16c", b"\x06\x16\x06\x16"]))
    match redis_type:
        case "string":
            return members
        case "list":
            return st.lists(texts(), max_size=4)
        case "set":
            return st.lists(members, max_size=4, unique=True)
        case "zset":
            return st.lists(st.tuples(members, st.floats(allow_nan=False)), max_size=4, unique_by=lambda item: item[0])
        case "hash":
            return st.dictionaries(members, texts(), max_size=3)
    return st.none()


def _raw(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")


# Jobs


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Any job that kombu can hold at NOW: messages of a native queue, jobs of other families, and messages of its own."""
    job_id, queue = draw(tags), draw(queues)
    was_message = draw(st.booleans())
    state = draw(st.sampled_from([State.WAITING, State.WAITING, State.SCHEDULED, State.ACTIVE]))
    extra = draw(
        st.dictionaries(st.sampled_from(["qless", "migration", "b64"]), st.dictionaries(lines, extra_values), max_size=2)
    )
    own: dict[str, Any] = {}
    if was_message:
        own["head"] = codec.encode(draw(heads(job_id, queue)), b"")[:-1]
    if draw(st.booleans()):
        own |= {"score": float(draw(st.integers(0, 2**50))), "fields": {"x": b"\xff", "deliveries": None}}
    if own:
        extra["ferryman"] = own
    if state is State.ACTIVE:
        extra["kombu"] = {"state": "active", "scores": {"unacked_index": draw(st.floats(0, 2e9))}}
    moments = st.one_of(st.none(), whole_numbers)
    counts = st.one_of(st.none(), st.integers(0, 40), whole_numbers)
    return Job(
        id=job_id,
        queue=queue,
        name=draw(lines if was_message else lines.filter(bool)),
        state=state,
        priority=draw(st.one_of(st.none(), whole_numbers, st.floats(allow_nan=False))),
        payload=draw(st.one_of(st.none(), bodies)) if was_message else draw(json_texts),
        created_at=draw(moments),
        updated_at=draw(moments),
        due_at=draw(st.integers(NOW + 1, FAR_AHEAD) if state is State.SCHEDULED else moments),
        started_at=draw(moments),
        finished_at=draw(moments),
        attempts=draw(counts),
        max_attempts=draw(counts),
        progress=draw(st.one_of(st.none(), st.floats(0, 1))),
        result=draw(st.one_of(st.none(), st.binary(max_size=8))),
        error=draw(st.one_of(st.none(), lines)),
        worker=draw(st.one_of(st.none(), lines)),
        lease_expires_at=draw(moments),
        tags=tuple(draw(st.lists(lines, max_size=2))),
        depends_on=tuple(draw(st.lists(lines, max_size=2))),
        unique_key=draw(st.one_of(st.none(), lines)),
        ttl=draw(moments),
        logs=tuple(draw(st.lists(st.binary(max_size=8), max_size=3))),
        history=tuple(draw(st.lists(st.dictionaries(lines, extra_values, max_size=2), max_size=2))),
        extra=extra,
        position=draw(st.one_of(st.none(), st.integers(0, 5))),
        rank=draw(st.one_of(st.none(), st.integers(-256, 255))),
    )


def is_sent_by_name(job: Job) -> bool:
    """Whether the message of a job went to its queue by name, through no exchange."""
    head = job.extra.get("ferryman", {}).get("head")
    return head is None or codec.decode(head + b"\n")[0]["properties"]["delivery_info"]["exchange"] == ""
