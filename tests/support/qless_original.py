"""qless-py 0.11 as its format page tells it, command by command: what its script writes when a client puts, pops or ends a job.

The script is one step for all others, so a client that dies leaves all of a command or nothing; but never hears the answer.
"""

from __future__ import annotations

import json
import math
from typing import Any

import redis
from attrs import frozen

GRACE_S, HEARTBEAT_S = 10, 60


@frozen
class OriginalQless:
    """One queue as qless-py's clients use it. ``now``: seconds."""

    client: redis.Redis
    queue: str

    def _zset(self, index: str) -> str:
        return f"ql:q:{self.queue}-{index}"

    def _fields(self, job_id: str) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.client.hgetall(f"ql:j:{job_id}").items()}

    def _happened(self, now: float, job_id: str, what: str, about: dict[str, Any] | None = None) -> None:
        entry = [math.floor(now), what] if about is None else [math.floor(now), what, about]
        self.client.rpush(f"ql:j:{job_id}-history", json.dumps(entry))

    def _count(self, now: float, name: str, by: int) -> None:
        self.client.hincrby(f"ql:s:stats:{math.floor(now - now % 86400)}:{self.queue}", name, by)

    def _measure(self, kind: str, now: float, value: float) -> None:
        key = f"ql:s:{kind}:{math.floor(now - now % 86400)}:{self.queue}"
        total, mean, vk = (float(each or 0) for each in self.client.hmget(key, ["total", "mean", "vk"]))
        total += 1
        new_mean = value if total == 1 else mean + (value - mean) / total
        vk = 0 if total == 1 else vk + (value - new_mean) * (value - mean)
        self.client.hset(key, mapping={"total": int(total), "mean": new_mean, "vk": vk})
        cell = math.floor(value)
        unit = "s" if cell < 60 else "m" if cell < 3600 else "h" if cell < 86400 else "d"
        self.client.hincrby(key, f"{unit}{cell // {'s': 1, 'm': 60, 'h': 3600, 'd': 86400}[unit]}", 1)

    def _into_work(self, now: float, job_id: str, priority: float) -> None:
        self.client.zadd(self._zset("work"), {job_id: priority - now / 1e10})

    def _list_failure(self, now: float, job_id: str, group: str, worker: str) -> None:
        failure = {"group": group, "message": "it failed", "when": math.floor(now), "worker": worker}
        self.client.hset(
            f"ql:j:{job_id}", mapping={"state": "failed", "worker": "", "expires": "", "failure": json.dumps(failure)}
        )
        self.client.sadd("ql:failures", group)
        self.client.lpush(f"ql:f:{group}", job_id)

    def _unlist_failure(self, job_id: str, failure: dict[str, Any]) -> None:
        key = f"ql:f:{failure['group']}"
        self.client.lrem(key, 0, job_id)
        if not self.client.exists(key):
            self.client.srem("ql:failures", failure["group"])

    def put(self, now: float, job_id: str, *, priority: float = 0, delay: float = 0, retries: int = 2) -> None:
        """Puts a job, or one that there is anew."""
        old = self._fields(job_id)
        self._happened(now, job_id, "put", {"q": self.queue})
        for index in ("work", "locks", "scheduled"):
            self.client.zrem(self._zset(index), job_id)
        if old.get("worker"):
            self.client.zrem(f"ql:w:{old['worker']}:jobs", job_id)
        if old.get("state") == "complete":
            self.client.zrem("ql:completed", job_id)
        if old.get("state") == "failed":
            failure = json.loads(old["failure"])
            self._unlist_failure(job_id, failure)
            self._count(failure["when"], "failed", -1)
        fields: dict[str, Any] = {
            "jid": job_id,
            "klass": "x",
            "data": "{}",
            "priority": priority,
            "tags": "{}",
            "worker": "",
            "expires": 0,
            "queue": self.queue,
            "retries": retries,
            "remaining": retries,
            "time": f"{now:.20f}",
        }
        self.client.hset(f"ql:j:{job_id}", mapping={**fields, "state": "scheduled" if delay else "waiting"})
        if delay:
            self.client.zadd(self._zset("scheduled"), {job_id: now + delay})
        else:
            self._into_work(now, job_id, priority)
        self.client.zadd("ql:queues", {self.queue: now}, nx=True)

    def pop(self, now: float, worker: str) -> str | None:
        """The next job, if there is one."""
        self.client.zadd("ql:workers", {worker: now})
        chosen = self._lost(now) or self._next(now)
        if chosen is None:
            return None
        time = float(self._fields(chosen)["time"])
        self._happened(now, chosen, "popped", {"worker": worker})
        self._measure("wait", now, now - time)
        expires = now + HEARTBEAT_S
        fields = {"time": f"{now:.20f}", "worker": worker, "expires": f"{expires:.17g}", "state": "running"}
        self.client.zadd(f"ql:w:{worker}:jobs", {chosen: expires})
        self.client.hset(f"ql:j:{chosen}", mapping=fields)
        self.client.zadd(self._zset("locks"), {chosen: expires})
        self.client.zrem(self._zset("work"), chosen)
        return chosen

    def _next(self, now: float) -> str | None:
        for due in self.client.zrangebyscore(self._zset("scheduled"), "-inf", now, 0, 1):
            self._into_work(now, due.decode(), float(self._fields(due.decode())["priority"]))
            self.client.zrem(self._zset("scheduled"), due)
            self.client.hset(f"ql:j:{due.decode()}", "state", "waiting")
        first = self.client.zrevrange(self._zset("work"), 0, 0)
        return first[0].decode() if first else None

    def _lost(self, now: float) -> str | None:
        """The first lock that has ended: its worker is warned, or the job is free."""
        ended = self.client.zrangebyscore(self._zset("locks"), "-inf", now, 0, 1)
        if not ended:
            return None
        job_id = ended[0].decode()
        fields = self._fields(job_id)
        self.client.zrem(f"ql:w:{fields['worker']}:jobs", job_id)
        if "grace" not in fields:
            self._happened(now, job_id, "timed-out")
            self.client.hset(f"ql:j:{job_id}", "grace", 1)
            self.client.zadd(self._zset("locks"), {job_id: now + GRACE_S})
            self._count(now, "retries", 1)
            return None
        self.client.hdel(f"ql:j:{job_id}", "grace")
        if self.client.hincrby(f"ql:j:{job_id}", "remaining", -1) >= 0:
            return job_id
        self.client.zrem(self._zset("locks"), job_id)
        self._happened(now, job_id, "failed", {"group": f"failed-retries-{self.queue}"})
        self._list_failure(now, job_id, f"failed-retries-{self.queue}", "")
        return None

    def _held(self, job_id: str, worker: str) -> dict[str, str] | None:
        fields = self._fields(job_id)
        return fields if fields.get("state") == "running" and fields.get("worker") == worker else None

    def heartbeat(self, now: float, job_id: str, worker: str) -> bool:
        """Renews a lock."""
        if self._held(job_id, worker) is None:
            return False
        expires = now + HEARTBEAT_S
        self.client.hset(f"ql:j:{job_id}", "expires", f"{expires:.17g}")
        self.client.zadd(f"ql:w:{worker}:jobs", {job_id: expires})
        self.client.zadd(self._zset("locks"), {job_id: expires})
        return True

    def complete(self, now: float, job_id: str, worker: str) -> bool:
        """Ends a job that is done."""
        fields = self._held(job_id, worker)
        if fields is None:
            return False
        self._happened(now, job_id, "done")
        self.client.zrem(self._zset("locks"), job_id)
        self._measure("run", now, now - float(fields["time"]))
        self.client.zrem(f"ql:w:{worker}:jobs", job_id)
        done = {"state": "complete", "worker": "", "failure": "{}", "queue": "", "expires": 0, "time": f"{now:.20f}"}
        self.client.hset(f"ql:j:{job_id}", mapping={**done, "remaining": fields["retries"]})
        self.client.zadd("ql:completed", {job_id: now})
        return True

    def fail(self, now: float, job_id: str, worker: str) -> bool:
        """Ends a job that has failed."""
        if self._held(job_id, worker) is None:
            return False
        self.client.zrem(f"ql:w:{worker}:jobs", job_id)
        self._happened(now, job_id, "failed", {"worker": worker, "group": "boom"})
        self._count(now, "failures", 1)
        self._count(now, "failed", 1)
        self.client.zrem(self._zset("locks"), job_id)
        self._list_failure(now, job_id, "boom", worker)
        return True

    def cancel(self, job_id: str) -> None:
        """Nothing is left of a job, unless it is complete."""
        fields = self._fields(job_id)
        if not fields or fields["state"] == "complete":
            return
        if fields["worker"]:
            self.client.zrem(f"ql:w:{fields['worker']}:jobs", job_id)
        for index in ("work", "locks", "scheduled"):
            self.client.zrem(self._zset(index), job_id)
        if fields["state"] == "failed":
            failure = json.loads(fields["failure"])
            self._unlist_failure(job_id, failure)
            key = f"ql:s:stats:{math.floor(failure['when'] - failure['when'] % 86400)}:{self.queue}"
            if self.client.hexists(key, "failed"):  # without it the original stops half way
                self.client.hincrby(key, "failed", -1)
        self.client.delete(f"ql:j:{job_id}", f"ql:j:{job_id}-history")
