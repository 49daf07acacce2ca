"""Small qless keyspaces as lists of keys: one sound job in one of several states, and many generated ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from ferryman.compat.qless.generate import generate_records
from ferryman.schema.fact import Entry

NOW = 1_800_000_000_000
PUT = 1_799_999_000
FAILURE = b'{"group":"g","message":"m","when":%d,"worker":"w"}' % PUT
STANDING = {
    "waiting": (b"ql:q:q-work", "zset", [(b"1", 5 - PUT / 1e10)]),
    "scheduled": (b"ql:q:q-scheduled", "zset", [(b"1", PUT + 5000.0)]),
    "complete": (b"ql:completed", "zset", [(b"1", float(PUT))]),
    "failed": (b"ql:f:g", "list", [b"1"]),
}
HISTORY = {
    "waiting": [b'[%d,"put",{"q":"q"}]' % PUT],
    "scheduled": [b'[%d,"put",{"q":"q"}]' % PUT],
    "complete": [b'[%d,"put",{"q":"q"}]' % PUT, b'[%d,"popped",{"worker":"w"}]' % PUT, b'[%d,"done"]' % PUT],
    "failed": [b'[%d,"put",{"q":"q"}]' % PUT, b'[%d,"popped",{"worker":"w"}]' % PUT, b'[%d,"failed",{"group":"g"}]' % PUT],
}


def sound(word: str, **more: bytes) -> dict[bytes, Entry]:
    """The keys of a job that qless has written, by their names."""
    fields = {
        b"jid": b"1",
        b"klass": b"K",
        b"data": b"{}",
        b"priority": b"5",
        b"tags": b'["a"]',
        b"state": word.encode(),
        b"queue": b"" if word == "complete" else b"q",
        b"retries": b"5",
        b"remaining": b"5",
        b"worker": b"",
        b"expires": b"0",
        b"time": b"%d.25" % PUT,
        b"failure": FAILURE if word == "failed" else b"{}",
        **{name.encode(): value for name, value in more.items()},
    }
    keys = [
        Entry(b"ql:j:1", "hash", fields),
        Entry(b"ql:j:1-history", "list", HISTORY[word]),
        Entry(*STANDING[word]),
        Entry(b"ql:t:a", "zset", [(b"1", float(PUT))]),
    ]
    return {entry.key: entry for entry in keys}


def generated(jobs: int, seed: int) -> list[Entry]:
    """Generated jobs in all of their keys; those of an odd seed have throttles."""
    keys: list[Entry] = []
    lists: defaultdict[str, list[bytes]] = defaultdict(list)
    sets: defaultdict[str, list[bytes]] = defaultdict(list)
    zsets: defaultdict[str, dict[bytes, float]] = defaultdict(dict)
    for made in generate_records(jobs, seed, NOW):
        record, member, created = made.record, made.id.encode(), made.created_at / 1000
        keys += [Entry(b"ql:j:" + member, "hash", dict(record.fields))]
        keys += [Entry(b"ql:j:" + member + b"-history", "list", list(record.history))]
        for role, score in record.scores.items():
            zsets["completed" if role == "completed" else f"q:{made.queue}-{role}"][member] = score
        for tag in record.tags:
            zsets[f"t:{tag}"][member] = created
        for other in record.depends_on:
            sets[f"j:{made.id}-dependencies"].append(other.encode())
            sets[f"j:{other}-dependents"].append(member)
        if record.fields[b"state"] == b"failed":
            lists[f"f:{record.group}"].insert(0, member)
        if record.fields[b"state"] == b"running":
            zsets["workers"][record.fields[b"worker"]] = created
            zsets[f"w:{record.fields[b'worker'].decode()}:jobs"][member] = record.scores["locks"]
        for name, score in made.extra.get("qless", {}).get("scores", {}).items():
            role, colon, throttle = name.partition(":")
            if colon:
                zsets[f"th:{throttle}-{'locks' if role == 'slot' else role}"][member] = score
        zsets["queues"].setdefault(made.queue.encode(), created)
    sets["failures"] = [name.removeprefix("f:").encode() for name in lists]
    zsets["tags"] = {name[2:].encode(): float(len(jobs_of)) for name, jobs_of in zsets.items() if name.startswith("t:")}
    keys += (Entry(f"ql:{name}".encode(), "list", members) for name, members in lists.items())
    keys += (Entry(f"ql:{name}".encode(), "set", members) for name, members in sets.items() if members)
    keys += (Entry(f"ql:{name}".encode(), "zset", _in_order(scores)) for name, scores in zsets.items() if scores)
    return keys


def _in_order(scores: Mapping[bytes, float]) -> list[tuple[bytes, float]]:
    return sorted(scores.items(), key=lambda item: (item[1], item[0]))
