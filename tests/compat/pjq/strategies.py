"""What hypothesis draws for pjq: keys of any content, jobs that pjq can hold, and records as the programs may have left them."""

from __future__ import annotations

import json
from typing import Any

from ferryman.schema.fact import Entry
from ferryman.schema.job import Job, State
from hypothesis import strategies as st

from ...support.strategies import extra_values, lines, whole_numbers
from ...support.strategies import times as ms_times
from ..kue.strategies import numbers

NOW_MS = 1_800_000_000_000

TYPES = ["string", "list", "set", "zset", "hash", "stream"]
IDS = ["9c66e12a-8789-43a7-b798-ac588c2452f4", "5", "", "job one:1 ü", "None", "undefined", "\udcff", "['a']"]
QUEUES = ["ffmpeg", "", "a:b", 'größe/日本語 "q"', "line\nbreak", "*?[a]", "\udcff"]
CONTAINERS = ["jobs_queued", "jobs_dispatched", "jobs_processing", "jobs_progress", "jobs_finished"]
WORKERS = ["workers_idle", "workers_busy", "workers_last_seen"]
OLD = ["job_queue", "leased_queue", "progress_queue", "idle_queue"]

own_payloads = st.fixed_dictionaries(
    {"uuid": st.sampled_from([*IDS[:-2], 5, None, True, 1.5, ["a"]]), "queue_name": st.sampled_from([*QUEUES[:-1], 7])},
    optional={
        "command": st.one_of(st.text(max_size=5), st.none()),
        "created_at": st.sampled_from(["2026-11-21T12:22:47.936220Z", "2026-11-21", "now", 5]),
        "started_at": st.just("2026-11-21T12:22:47Z"),
        "finished_at": st.floats(),
        "exitcode": st.sampled_from([0, 1, None, "0", 0.0, [1]]),
        "stdout": st.one_of(st.text(max_size=5), st.none(), st.just({"a": 1})),
        "stderr": st.one_of(st.text(max_size=5), st.integers()),
        "priority": st.integers(0, 9),
    },
).map(lambda members: json.dumps(members).encode())
"""As producers and workers send them, and a little beside."""

payloads = st.one_of(
    own_payloads,
    st.sampled_from([b"{}", b"[]", b"NaN", b'{"a":NaN}', b'{"uuid":', b'"\xf6"', b"1" * 5000]),
    st.sampled_from([b"[" * 100_000, b'{"a":' * 100_000]),
    st.binary(max_size=12),
)
short_payloads = st.one_of(own_payloads, st.sampled_from([b"{}", b"[]", b'{"a":NaN}', b'{"uuid":', b'"\xf6"', b""]))
times = st.one_of(
    numbers,
    st.sampled_from([b"2026-11-21T12:22:47.936220Z", b"2026-11-21T12:22:47", b"1795263761.872756", b"0001-01-01T00:00:00+23:00"]),
)
id_bytes = st.sampled_from([each.encode(errors="surrogateescape") for each in IDS])
texts = st.one_of(payloads, times, st.binary(max_size=12), id_bytes)
fields = st.sampled_from(b"json dispatched_at started_at worker_uuid finished_at leased_at ferryman tenant \xff".split())
members = st.one_of(id_bytes, st.binary(max_size=12))
scores = st.one_of(st.floats(allow_nan=False), st.floats(NOW_MS / 1000 - 60, NOW_MS / 1000 + 60), st.floats(0, 1))


@st.composite
def entries(draw: st.DrawFn, prefix: str = "") -> Entry:
    """Any key that a pjq keyspace could hold, and many that it could not."""
    container = draw(st.sampled_from([*CONTAINERS, *WORKERS, *OLD, "_ferryman.jobs_queued"]))
    queue = draw(st.sampled_from(QUEUES))
    name = draw(st.one_of(st.just(f"{container}:{queue}"), st.sampled_from(IDS), st.text(max_size=5)))
    key = draw(st.one_of(st.just(f"{prefix}{name}".encode(errors="surrogateescape")), st.binary(max_size=12)))
    redis_type = draw(st.one_of(st.sampled_from(TYPES), st.just(usual_type(container))))
    ttl_ms = draw(st.one_of(st.none(), st.integers(0, 2**50)))
    return Entry(key, redis_type, draw(_value(redis_type)), ttl_ms, draw(st.sampled_from([0, 500])))


def usual_type(container: str) -> str:
    """The Redis type of a container."""
    match container:
        case "jobs_queued" | "job_queue":
            return "list"
        case "workers_idle" | "workers_busy":
            return "set"
    return "zset"


def _value(redis_type: str) -> st.SearchStrategy[Any]:
    match redis_type:
        case "string":
            return texts
        case "list":
            return st.lists(members, max_size=4)
        case "set":
            return st.lists(members, max_size=4, unique=True)
        case "zset":
            return st.lists(st.tuples(members, scores), max_size=4, unique_by=lambda item: item[0])
        case "hash":
            known = st.fixed_dictionaries({b"json": payloads}, optional={b"dispatched_at": times, b"finished_at": times})
            return st.one_of(known, st.dictionaries(fields, texts, max_size=6))
    return st.none()


# Jobs

ids = st.one_of(st.sampled_from(["5", "job one:1 ü", "None", "9c66e12a-8789-43a7-b798-ac588c2452f4"]), st.uuids().map(str))
queue_names = st.one_of(st.sampled_from(QUEUES[:-1]), st.text(max_size=5).filter(str.isprintable))
json_texts = st.one_of(
    st.sampled_from(
        [b"{}", b"[]", b"42", b' {"a": 1} \n', b'{"uuid":"x","uuid":"5"}', b"null", '{"ü": [1, {"b": "東京"}]}'.encode()]
    ),
    own_payloads,
)


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Any job that pjq can hold: nothing read from pjq, as it might come from another family."""
    state = draw(st.sampled_from([State.WAITING, State.COMPLETED, State.FAILED]))
    extra = draw(
        st.dictionaries(st.sampled_from(["qless", "migration", "b64"]), st.dictionaries(lines, extra_values), max_size=2)
    )
    return Job(
        id=draw(ids),
        queue=draw(queue_names),
        name=draw(lines),
        state=state,
        priority=draw(st.one_of(st.none(), whole_numbers, st.floats(allow_nan=False))),
        payload=draw(json_texts if state is State.WAITING else st.one_of(st.none(), json_texts, st.binary(max_size=8))),
        created_at=draw(ms_times),
        updated_at=draw(ms_times),
        due_at=draw(ms_times),
        started_at=draw(ms_times),
        finished_at=draw(ms_times),
        attempts=draw(st.one_of(st.none(), st.integers(0, 5), whole_numbers)),
        max_attempts=draw(st.one_of(st.none(), whole_numbers)),
        progress=draw(st.one_of(st.none(), st.floats(0, 1))),
        result=draw(st.one_of(st.none(), json_texts, st.binary(max_size=8))),
        error=draw(st.one_of(st.none(), lines)),
        worker=draw(st.one_of(st.none(), lines)),
        lease_expires_at=draw(ms_times),
        tags=tuple(draw(st.lists(lines, max_size=2))),
        depends_on=tuple(draw(st.lists(lines, max_size=2))),
        unique_key=draw(st.one_of(st.none(), lines)),
        ttl=draw(st.one_of(st.none(), whole_numbers)),
        logs=tuple(draw(st.lists(st.binary(max_size=8), max_size=3))),
        history=tuple(draw(st.lists(st.dictionaries(lines, extra_values, max_size=2), max_size=2))),
        extra=extra,
    )


@st.composite
def valid_records(draw: st.DrawFn) -> list[Entry]:
    """One job as some program may have left it: a hash of any content, and the containers of one state with any scores."""
    job_id, queue = draw(ids), draw(queue_names)
    record = draw(st.dictionaries(fields, st.one_of(short_payloads, times, id_bytes), max_size=6))
    record[b"json"] = draw(short_payloads)
    role = draw(st.sampled_from(["queued", "dispatched", "processing", "finished"]))
    if role != "finished":
        record.pop(b"finished_at", None)
    member = job_id.encode()
    containers = ["processing", "progress"] if role == "processing" else [role]
    keys = [f"jobs_{container}:{queue}".encode() for container in containers]
    entries = [Entry(key, "list", [member]) if role == "queued" else Entry(key, "zset", [(member, draw(scores))]) for key in keys]
    worker = record.get(b"worker_uuid")
    if role == "processing" and worker and draw(st.booleans()):
        seen = draw(st.integers(10**15, 2 * 10**15)) / 1_000_000
        entries.append(Entry(f"workers_busy:{queue}".encode(), "set", [worker]))
        entries.append(Entry(f"workers_last_seen:{queue}".encode(), "zset", [(worker, seen)]))
    return [Entry(member, "hash", record), *entries]
