"""bee itself, modelled: each of its scripts as the plain commands that it sends, in their order.

Written from the description of its keyspace, not from its code; beside it stand the captures that it made itself. A script of bee
is atomic, so what a crash can cut a worker off from is a whole one: after ``pop``, after ``hash``, or during the run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from hashlib import sha1
from typing import Any

import redis
from attrs import define, field

LOCK, LOCK_WAITS = 45_000, 3
DEFAULTS = {
    "priority": 0,
    "delay": 0,
    "dependencies": [],
    "dependenciesOnTags": False,
    "preferredHostname": False,
    "retries": 5,
    "retryDelay": 30_000,
    "progressiveDelay": False,
    "ttl": 1_800_000,
}
UNFINISHED = ("new", "queued", "running", "retried")


def lua_json(value: Any) -> str:
    """JSON as Lua writes it inside Redis: numbers of 14 digits, empty lists as objects, slashes escaped."""
    match value:
        case None | True | False:
            return json.dumps(value)
        case int() | float():
            return f"{value:.14g}"
        case str():
            return json.dumps(value, ensure_ascii=False).replace("/", "\\/").replace("\x7f", "\\u007f")
        case dict() if value:
            return "{" + ",".join(f"{lua_json(name)}:{lua_json(each)}" for name, each in value.items()) + "}"
        case list() | tuple() if value:
            return "[" + ",".join(map(lua_json, value)) + "]"
    return "{}"


def argument(number: float) -> str:
    """A number as a script of Redis gives it to a command."""
    return f"{number:.17g}"


def default_hash(arguments: Sequence[Any]) -> str:
    """The hash of simple arguments: what JavaScript prints like Python does."""
    text = json.dumps(list(arguments), separators=(",", ":"), ensure_ascii=False) if arguments else "{}"
    return sha1(text.encode()).hexdigest()


@define
class OriginalBee:
    """One process of bee: a client, and a worker of any queue. ``now`` is the time of each call, Unix ms."""

    client: redis.Redis = field(repr=False)
    hive: str
    prefix: str = "bee"

    # What bee's own scripts are

    def put(
        self,
        now: int,
        jid: str,
        queue: str,
        arguments: Sequence[Any],
        options: dict[str, Any] | None = None,
        tags: Sequence[str | float] = (),
        parent: str | None = None,
    ) -> str | None:
        given = {**DEFAULTS, **(options or {})}
        assert not self.client.exists(self._record(jid))
        wanted = list(given["dependencies"])
        if given["dependenciesOnTags"]:
            wanted += sorted(map(bytes.decode, self.client.sinter([self._tag(tag) for tag in tags])))
        waits = False
        for other in wanted:
            status = self._get(other, "status")
            if status in UNFINISHED:
                self._set(other, dependants=lua_json([*(self._json(other, "dependants") or []), jid]))
                self.client.sadd(self._key("s:dependencies", jid), other)
                waits = True
        if parent is not None:
            if self._get(parent, "status") == "canceled":
                return None
            self._set(jid, parent=parent)
            self.client.sadd(f"{self.prefix}:s:{parent}:children", jid)
        self._set(jid, jid=jid, data=lua_json(list(arguments)), options=lua_json(given), worker="", queue=queue, status="new")
        self._set(jid, submitted=argument(now), retries="0", tags=lua_json(list(tags)))
        for tag in tags:
            self.client.sadd(self._tag(tag), jid)
        self._note(now, jid, "submitted")
        if waits:
            self._note(now, jid, "dependancyWaiting")
        elif given["delay"] > 0:
            self._delay(now, queue, jid, given["delay"])
        else:
            self._enqueue(now, queue, jid)
        return jid

    def pop(self, now: int, queue: str, most: int) -> list[str]:
        delayed, waiting = self._key("ss:delayed", queue), self._key("ss:queue", queue)
        for raw in self.client.zrangebyscore(delayed, 0, now):
            self.client.zrem(delayed, raw)
            self._enqueue(now, queue, raw.decode())
        queued = self.client.zcard(waiting)
        bees = self.client.zcount(self._key("ss:bees", queue), now - 30_000, now)
        if bees and most > queued / bees:
            most = math.ceil(queued / bees)
        popped = [raw.decode() for raw in self.client.zrange(waiting, 0, most - 1)] if most else []
        for jid in popped:
            self._set(jid, worker=self._worker(queue), status="running")
            self._note(now, jid, "popped")
            self.client.zadd(self._key("ss:locks", queue), {jid: now + LOCK})
            self.client.sadd(self._key("s:locks", self._worker(queue)), jid)
            self.client.zrem(waiting, jid)
        return popped

    def hash(self, now: int, queue: str, jid: str, value: str) -> str | None:
        """The original, if the job has become a duplicate."""
        assert self._get(jid, "worker") == self._worker(queue)
        listed = self._key(f"l:hashes:{queue}", value)
        head = self.client.lindex(listed, 0)
        self._set(jid, hash=value)
        self.client.rpush(listed, jid)
        if head is None:
            return None
        self._unlock(queue, jid)
        self._set(jid, duplicate=head.decode(), status="duplicate")
        self._note(now, jid, "duplicate", worker=self._worker(queue), duplicateJid=head.decode())
        self._tell(queue, jid, "duplicate")
        self._release(now, jid)
        return str(head.decode())

    def done(self, now: int, queue: str, jid: str, result: Any) -> bool:
        """False: not your job."""
        if self._get(jid, "status") == "canceled" or self._get(jid, "worker") != self._worker(queue):
            return False
        options = self._json(jid, "options")
        self._set(jid, result=lua_json(result), options=lua_json(options), status="completed")
        self._note(now, jid, "completed")
        self._unlock(queue, jid)
        self.client.zadd(self._key("ss:expires", queue), {jid: now + options["ttl"]})
        self._tell(queue, jid, "completed")
        self._release(now, jid)
        return True

    def failed(self, now: int, queue: str, jid: str, message: str, retry: bool = True, delay: float | None = None) -> bool:
        """False: not your job."""
        if self._get(jid, "status") == "canceled" or self._get(jid, "worker") != self._worker(queue):
            return False
        options, retries = self._json(jid, "options"), int(self._get(jid, "retries") or 0)
        self._unlock(queue, jid)
        self._set(jid, options=lua_json(options))
        self._note(now, jid, "exception", message=message)
        if not retry:
            self._fail(now, queue, jid, message)
        elif retries >= options["retries"]:
            self._fail(now, queue, jid, message if options["retries"] == 0 else "No more retries available")
        else:
            self._set(jid, retries=str(retries + 1), status="retried")
            if delay is None:
                delay = options["retryDelay"] * (retries + 1 if options["progressiveDelay"] else 1)
            self._delay(now, queue, jid, delay)
        return True

    def heartbeat(self, now: int, queue: str) -> None:
        worker, bees = self._worker(queue), self._key("ss:bees", queue)
        self.client.zremrangebyscore(bees, "-inf", now - 3_600_000)
        self.client.zadd(bees, {worker: now})
        for raw in self.client.smembers(self._key("s:locks", worker)):
            self.client.zadd(self._key("ss:locks", queue), {raw: now + LOCK})
            self.client.delete(f"{self.prefix}:str:lock-waits:{worker}:{raw.decode()}")

    def expired(self, now: int, queue: str) -> None:
        for raw in self.client.zrangebyscore(self._key("ss:expires", queue), "-inf", now):
            self._set(raw.decode(), status="expired")
            self._die(raw.decode())
        locks = self._key("ss:locks", queue)
        for raw in self.client.zrangebyscore(locks, "-inf", now):
            jid = raw.decode()
            worker = self._get(jid, "worker")
            waits = f"{self.prefix}:str:lock-waits:{worker}:{jid}"
            count = self.client.incr(waits)
            self.client.expire(waits, 86_400)
            if count <= LOCK_WAITS:
                self.client.zadd(locks, {jid: now + LOCK})
                continue
            self._note(now, jid, "expiredLock", old_worker=worker)
            self.client.zrem(locks, jid)
            self.client.srem(f"{self.prefix}:s:locks:{worker}", jid)
            retries = int(self._get(jid, "retries") or 0)
            if retries >= self._json(jid, "options")["retries"]:
                self._fail(now, queue, jid, "no more retries available")
            else:
                self._set(jid, retries=str(retries + 1), status="retried")
                self._enqueue(now, queue, jid)

    def cancel(self, now: int, jid: str) -> bool:
        queue = self._get(jid, "queue")
        if queue is None:
            return False
        if self._get(jid, "status") == "running":
            self.client.zrem(self._key("ss:locks", queue), jid)
            self.client.srem(f"{self.prefix}:s:locks:{self._get(jid, 'worker')}", jid)
        else:
            self.client.zrem(self._key("ss:delayed", queue), jid)
            self.client.zrem(self._key("ss:queue", queue), jid)
        self._note(now, jid, "canceled")
        self._set(jid, status="canceled")
        self._die(jid)
        for child in self.client.smembers(f"{self.prefix}:s:{jid}:children"):
            self.cancel(now, child.decode())
        self._tell(queue, jid, "canceled")
        self._release(now, jid)
        return True

    def progress(self, queue: str, jid: str, value: float) -> None:
        self._publish(queue, {"jid": jid, "type": "progress", "progress": value})

    def connect(self) -> None:
        self.client.set(f"{self.prefix}:str:hive:options", '{"log":false}')

    # Parts of several

    def _enqueue(self, now: int, queue: str, jid: str) -> None:
        options, waiting = self._json(jid, "options"), self._key("ss:queue", queue)
        first = self.client.zrange(waiting, 0, 0, withscores=True)
        lowest = first[0][1] if first else now
        score = now - (now - lowest) / 10 * min(float(options["priority"]), 10)
        self.client.execute_command("ZADD", waiting, argument(score), jid)
        self._set(jid, status="queued")
        self._note(now, jid, "queued")
        message = {"queue": queue, "jid": jid, "type": "new"}
        if options["preferredHostname"] is not False:
            self.client.publish(f"{self.prefix}:ch:host:{options['preferredHostname']}", lua_json(message))
        self._publish(queue, {"jid": jid, "type": "new"})

    def _delay(self, now: int, queue: str, jid: str, ms: float) -> None:
        self.client.execute_command("ZADD", self._key("ss:delayed", queue), argument(now + ms), jid)
        self._note(now, jid, "delayed", till=now + ms)

    def _fail(self, now: int, queue: str, jid: str, message: str) -> None:
        self._set(jid, failedReason=message, status="failed")
        self._note(now, jid, "failed", message=message)
        self.client.zadd(self._key("ss:expires", queue), {jid: now + self._json(jid, "options")["ttl"]})
        self._tell(queue, jid, "failed")
        self._release(now, jid)

    def _release(self, now: int, jid: str) -> None:
        for dependant in self._json(jid, "dependants") or ():
            needs = self._key("s:dependencies", dependant)
            self.client.srem(needs, jid)
            if not self.client.exists(needs) and self._get(dependant, "status") == "new":
                queue, options = self._get(dependant, "queue"), self._json(dependant, "options")
                assert queue is not None
                if options["delay"] > 0:
                    self._delay(now, queue, dependant, options["delay"])
                else:
                    self._enqueue(now, queue, dependant)

    def _die(self, jid: str) -> None:
        queue, value, ttl = self._get(jid, "queue"), self._get(jid, "hash"), self._json(jid, "options")["ttl"]
        assert queue is not None
        listed = self._key(f"l:hashes:{queue}", value or "")
        members = [raw.decode() for raw in self.client.lrange(listed, 0, -1)] if value is not None else [jid]
        for member in members:
            self.client.pexpire(self._record(member), ttl)
            self.client.zrem(self._key("ss:expires", queue), member)
            for tag in self._json(member, "tags") or ():
                self.client.srem(self._tag(tag), member)
            parent = self._get(member, "parent")
            if parent is not None:
                self.client.srem(f"{self.prefix}:s:{parent}:children", member)
        if value is not None:
            self.client.delete(listed)

    def _unlock(self, queue: str, jid: str) -> None:
        self.client.zrem(self._key("ss:locks", queue), jid)
        self.client.srem(self._key("s:locks", self._worker(queue)), jid)

    def _note(self, now: int, jid: str, event: str, **more: Any) -> None:
        history = self._json(jid, "history") or []
        self._set(jid, history=lua_json([*history, {"event": event, "timestamp": now, "hive": self.hive, **more}]))

    def _tell(self, queue: str, jid: str, event: str) -> None:
        self._publish(queue, {"jid": jid, "type": event, "job": self.load(jid)})

    def _publish(self, queue: str, message: dict[str, Any]) -> None:
        self.client.publish(f"{self.prefix}:ch:q:{queue}", lua_json({"queue": queue, **message}))

    def load(self, jid: str) -> dict[str, Any]:
        """The job as clients get it."""
        texts = ("jid", "parent", "queue", "worker", "hash", "status", "failedReason", "duplicate")
        job: dict[str, Any] = {name: self._get(jid, name) for name in texts}
        job = {name: False if value is None else value for name, value in job.items()}
        for name in ("data", "options", "tags", "result", "history", "dependants"):
            raw = self._get(jid, name)
            job[name] = {} if raw is None else json.loads(raw)
        job |= {"submitted": int(self._get(jid, "submitted") or 0), "retries": int(self._get(jid, "retries") or 0)}
        if job["duplicate"]:
            original = job["duplicate"]
            result = self._get(original, "result")
            job["duplicate"] = {
                "jid": original,
                "status": self._get(original, "status") or False,
                "result": {} if result is None else json.loads(result),
                "failedReason": self._get(original, "failedReason") or False,
            }
        return job

    # Keys

    def _worker(self, queue: str) -> str:
        return f"{self.hive}:{queue}"

    def _record(self, jid: str) -> str:
        return f"{self.prefix}:h:jobs:{jid}"

    def _key(self, kind: str, name: str) -> str:
        return f"{self.prefix}:{kind}:{name}"

    def _tag(self, tag: str | float) -> str:
        return self._key("s:tags", tag if isinstance(tag, str) else f"{tag:.14g}")

    def _get(self, jid: str, name: str) -> str | None:
        raw = self.client.hget(self._record(jid), name)
        return None if raw is None else str(raw.decode())

    def _json(self, jid: str, name: str) -> Any:
        raw = self._get(jid, name)
        return None if raw is None else json.loads(raw)

    def _set(self, jid: str, /, **fields: str) -> None:
        self.client.hset(self._record(jid), mapping=fields)
