"""Who can tell a story of qless: the original core, and our client. Each step has the same arguments and answer for both."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import redis
from attrs import define, field
from ferryman.compat.qless.client import QlessClient
from ferryman.compat.qless.live import Core
from ferryman.schema.connection.call import run
from ferryman.schema.errors import UsageError
from ferryman.schema.live import Failure, ForeignDelivery

from .cores import Original

LOST = "lost"
"""The answer to a step that nothing came of."""


class Teller(ABC):
    """One who tells. ``now``: Unix ms."""

    @abstractmethod
    def put(self, now: int, queue: str, job_id: str, data: Any, **options: Any) -> None: ...

    @abstractmethod
    def pop(self, now: int, queue: str, worker: str, n: int) -> list[str]: ...

    @abstractmethod
    def complete(self, now: int, queue: str, worker: str, job_id: str, data: Any, **onward: Any) -> str: ...

    @abstractmethod
    def fail(self, now: int, queue: str, worker: str, job_id: str, group: str, data: Any) -> str: ...

    @abstractmethod
    def retry(self, now: int, queue: str, worker: str, job_id: str, delay: int, group: str | None) -> str: ...

    @abstractmethod
    def heartbeat(self, now: int, queue: str, worker: str, job_id: str, data: Any) -> str: ...

    @abstractmethod
    def cancel(self, now: int, ids: Sequence[str]) -> str: ...

    @abstractmethod
    def timeout(self, now: int, job_id: str) -> str: ...

    @abstractmethod
    def depends(self, now: int, job_id: str, change: str, others: Sequence[str]) -> str: ...

    @abstractmethod
    def priority(self, now: int, job_id: str, priority: float) -> str: ...

    @abstractmethod
    def tag(self, now: int, job_id: str, change: str, tags: Sequence[str]) -> str: ...

    @abstractmethod
    def track(self, now: int, job_id: str, change: str) -> str: ...

    @abstractmethod
    def log(self, now: int, job_id: str, line: str, data: Any) -> str: ...

    @abstractmethod
    def unfail(self, now: int, group: str, queue: str, n: int) -> int: ...

    @abstractmethod
    def recur(self, now: int, queue: str, job_id: str, interval: float, **options: Any) -> None: ...

    @abstractmethod
    def update(self, now: int, job_id: str, name: str, value: Any) -> None: ...

    @abstractmethod
    def unrecur(self, now: int, job_id: str) -> None: ...

    @abstractmethod
    def peek(self, now: int, queue: str, n: int) -> list[str]: ...

    @abstractmethod
    def pause(self, now: int, queue: str, *, is_over: bool = False) -> None: ...

    @abstractmethod
    def config(self, now: int, option: str, value: Any) -> None: ...

    @abstractmethod
    def throttle(self, now: int, name: str, maximum: int) -> None: ...

    @abstractmethod
    def counts(self, now: int) -> dict[str, list[Any]]: ...

    @abstractmethod
    def workers(self, now: int) -> list[list[Any]]: ...

    @abstractmethod
    def stats(self, now: int, queue: str) -> dict[str, Any]: ...


COUNTED = ("waiting", "running", "stalled", "scheduled", "depends", "recurring", "throttled", "paused")


@define
class OriginalTeller(Teller):
    """The original core."""

    core: Original

    def _done(self, command: str, now: int, *args: Any) -> str:
        try:
            self.core(command, now, *args)
        except redis.ResponseError as error:
            if not any(word in str(error) for word in REFUSALS):
                raise
            return LOST
        return "done"

    def put(self, now: int, queue: str, job_id: str, data: Any, **options: Any) -> None:
        args: list[Any] = [queue, job_id, "shop.Job", json.dumps(data), options.get("delay", 0)]
        for name in ("priority", "retries"):
            if name in options:
                args += [name, options[name]]
        for name in ("tags", "depends", "throttles"):
            if name in options and (name != "throttles" or self.core.core == "reqless"):
                args += [name, json.dumps(options[name])]
        if self.core.core == "reqless":
            args.insert(0, options.get("worker", ""))
        self.core("put", now, *args)

    def pop(self, now: int, queue: str, worker: str, n: int) -> list[str]:
        return [job["jid"] for job in self.core.json("pop", now, queue, worker, n)]

    def complete(self, now: int, queue: str, worker: str, job_id: str, data: Any, **onward: Any) -> str:
        args: list[Any] = []
        if "next_queue" in onward:
            args += ["next", onward["next_queue"], "delay", onward.get("delay", 0)]
            args += ["depends", json.dumps(onward.get("depends", []))]
        return self._done("complete", now, job_id, worker, queue, json.dumps(data), *args)

    def fail(self, now: int, queue: str, worker: str, job_id: str, group: str, data: Any) -> str:
        return self._done("fail", now, job_id, worker, group, "it went\nwrong", json.dumps(data))

    def retry(self, now: int, queue: str, worker: str, job_id: str, delay: int, group: str | None) -> str:
        return self._done("retry", now, job_id, queue, worker, delay, *([group, "not yet"] if group else []))

    def heartbeat(self, now: int, queue: str, worker: str, job_id: str, data: Any) -> str:
        return self._done("heartbeat", now, job_id, worker, json.dumps(data))

    def cancel(self, now: int, ids: Sequence[str]) -> str:
        # It publishes that it has cancelled what there never was.
        known = [job_id for job_id in ids if self.core.server.hexists(f"ql:j:{job_id}", "jid")]
        return self._done("cancel", now, *known) if known else "done"

    def timeout(self, now: int, job_id: str) -> str:
        return self._done("timeout", now, job_id)

    def depends(self, now: int, job_id: str, change: str, others: Sequence[str]) -> str:
        return self._done("depends", now, job_id, *(["off", "all"] if change == "none" else [change, *others]))

    def priority(self, now: int, job_id: str, priority: float) -> str:
        return self._done("priority", now, job_id, priority)

    def tag(self, now: int, job_id: str, change: str, tags: Sequence[str]) -> str:
        return self._done("tag", now, change, job_id, *tags)

    def track(self, now: int, job_id: str, change: str) -> str:
        return self._done("track", now, change, job_id)

    def log(self, now: int, job_id: str, line: str, data: Any) -> str:
        return self._done("log", now, job_id, line, *([] if data is None else [json.dumps(data)]))

    def unfail(self, now: int, group: str, queue: str, n: int) -> int:
        count: int = self.core("unfail", now, queue, group, n)
        return count

    def recur(self, now: int, queue: str, job_id: str, interval: float, **options: Any) -> None:
        args: list[Any] = [queue, job_id, "shop.Job", "{}", "interval", interval, options["offset"]]
        for name in ("priority", "retries", "backlog"):
            args += [name, options[name]]
        args += ["tags", json.dumps(options["tags"])]
        if self.core.core == "reqless":
            args += ["throttles", json.dumps(options["throttles"])]
        self.core("recur", now, *args)

    def update(self, now: int, job_id: str, name: str, value: Any) -> None:
        self.core("recur.update", now, job_id, name, json.dumps(value) if name == "data" else value)

    def unrecur(self, now: int, job_id: str) -> None:
        self.core("unrecur", now, job_id)

    def peek(self, now: int, queue: str, n: int) -> list[str]:
        args = (0, n) if self.core.core == "reqless" else (n,)
        return [job["jid"] for job in self.core.json("peek", now, queue, *args)]

    def pause(self, now: int, queue: str, *, is_over: bool = False) -> None:
        self.core("unpause" if is_over else "pause", now, queue)

    def config(self, now: int, option: str, value: Any) -> None:
        self.core("config.set", now, option, value)

    def throttle(self, now: int, name: str, maximum: int) -> None:
        self.core("throttle.set", now, name, maximum, 0)

    def counts(self, now: int) -> dict[str, list[Any]]:
        return {row["name"]: [row.get(name, 0) for name in COUNTED] for row in self.core.json("queues", now)}

    def workers(self, now: int) -> list[list[Any]]:
        return sorted([row["name"], row["jobs"], row["stalled"]] for row in self.core.json("workers", now))

    def stats(self, now: int, queue: str) -> dict[str, Any]:
        told = self.core.json("stats", now, queue, repr(now / 1000))
        for name in ("wait", "run"):
            cells = told[name]["histogram"]
            told[name]["histogram"] = {cell: count for cell, count in zip(CELLS, cells, strict=False) if count}
        return {name: told[name] for name in ("wait", "run", "retries", "failures", "failed") if name in told}


CELLS = [f"s{n}" for n in range(60)] + [f"m{n}" for n in range(1, 60)] + [f"h{n}" for n in range(1, 24)]
"""The cells of a histogram in the original's list of them; those of days follow."""

REFUSALS = (
    "not currently running",
    "not running",
    "does not exist",
    "not in the depends state",
    "another worker",
    "no queue name",
    "is a dependency of",
    "currently running",
    "Job given out",
)
"""Words of the errors by which the original says that a step can't be."""


def printed(number: float) -> float:
    """A number as Lua prints it into JSON."""
    return float(f"{number:.14g}")


@define
class OurTeller(Teller):
    """Our client: one for each worker."""

    server: redis.Redis
    core: Core
    _clients: dict[str, QlessClient] = field(factory=dict)

    def client(self, worker: str = "") -> QlessClient:
        """The client of a worker."""
        if worker not in self._clients:
            self._clients[worker] = QlessClient(self.server, consumer=worker or "nobody", core=self.core)
        return self._clients[worker]

    def _job(self, queue: str, job_id: str) -> ForeignDelivery:
        """A job as its worker remembers it, whatever has become of it."""
        return ForeignDelivery(job_id, 0, 0, 1, {}, queue=queue)

    def put(self, now: int, queue: str, job_id: str, data: Any, **options: Any) -> None:
        if self.core != "reqless":
            options.pop("throttles", None)
        delay = options.pop("delay", 0)
        self.client().put(queue, data, name="shop.Job", job_id=job_id, delay_ms=round(delay * 1000), now=now, **options)

    def pop(self, now: int, queue: str, worker: str, n: int) -> list[str]:
        return [job.id for job in self.client(worker).take(queue, n, now=now)]

    def complete(self, now: int, queue: str, worker: str, job_id: str, data: Any, **onward: Any) -> str:
        delay = onward.pop("delay", 0)
        job = self._job(queue, job_id)
        outcome = self.client(worker).complete(job, data=data, delay_ms=round(delay * 1000), now=now, **onward)
        return LOST if outcome == "lost" else "done"

    def fail(self, now: int, queue: str, worker: str, job_id: str, group: str, data: Any) -> str:
        outcome = self.client(worker).fail(self._job(queue, job_id), group, "it went\nwrong", data=data, now=now)
        return LOST if outcome == "lost" else "done"

    def retry(self, now: int, queue: str, worker: str, job_id: str, delay: int, group: str | None) -> str:
        failure = Failure("not yet", group=group or "")
        call = self.client().live.retry(queue, worker, job_id, delay * 1000, failure=failure, now=now)
        return LOST if run(self.server, call) == "lost" else "done"

    def heartbeat(self, now: int, queue: str, worker: str, job_id: str, data: Any) -> str:
        return "done" if self.client(worker).heartbeat(self._job(queue, job_id), data=data, now=now) else LOST

    def cancel(self, now: int, ids: Sequence[str]) -> str:
        try:
            self.client().cancel_all(ids, now=now)
        except UsageError:
            return LOST
        return "done"

    def timeout(self, now: int, job_id: str) -> str:
        return "done" if self.client().timeout(job_id, now=now) else LOST

    def depends(self, now: int, job_id: str, change: str, others: Sequence[str]) -> str:
        client = self.client()
        if change == "on":
            is_done = client.depend(job_id, others, now=now)
        else:
            is_done = client.undepend(job_id, others if change == "off" else None, now=now)
        return "done" if is_done else LOST

    def priority(self, now: int, job_id: str, priority: float) -> str:
        return "done" if self.client().set_priority(job_id, priority) else LOST

    def tag(self, now: int, job_id: str, change: str, tags: Sequence[str]) -> str:
        client = self.client()
        has = (client.tag if change == "add" else client.untag)(job_id, *tags, now=now)
        return LOST if has is None else "done"

    def track(self, now: int, job_id: str, change: str) -> str:
        client = self.client()
        return "done" if (client.track(job_id, now=now) if change == "track" else client.untrack(job_id)) else LOST

    def log(self, now: int, job_id: str, line: str, data: Any) -> str:
        return "done" if self.client().log(job_id, line, data, now=now) else LOST

    def unfail(self, now: int, group: str, queue: str, n: int) -> int:
        return self.client().unfail(group, queue, n, now=now)

    def recur(self, now: int, queue: str, job_id: str, interval: float, **options: Any) -> None:
        self.client().recur(queue, {}, interval, name="shop.Job", job_id=job_id, now=now, **options)

    def update(self, now: int, job_id: str, name: str, value: Any) -> None:
        self.client().update_recurring(job_id, now=now, **{name: value})

    def unrecur(self, now: int, job_id: str) -> None:
        self.client().unrecur(job_id)

    def peek(self, now: int, queue: str, n: int) -> list[str]:
        return [job.id for job in self.client().peek(queue, n, now=now)]

    def pause(self, now: int, queue: str, *, is_over: bool = False) -> None:
        (self.client().unpause if is_over else self.client().pause)(queue)

    def config(self, now: int, option: str, value: Any) -> None:
        self.client().set_config(option, value)

    def throttle(self, now: int, name: str, maximum: int) -> None:
        self.client().set_throttle(name, maximum)

    def counts(self, now: int) -> dict[str, list[Any]]:
        return {row.name: [getattr(row, name) for name in COUNTED] for row in self.client().counts(now=now)}

    def workers(self, now: int) -> list[list[Any]]:
        return sorted([row.name, row.jobs, row.stalled] for row in self.client().workers(now=now))

    def stats(self, now: int, queue: str) -> dict[str, Any]:
        told = self.client().stats(queue, now / 1000)
        measures = {
            name: {"count": each.count, "mean": printed(each.mean), "std": printed(each.std), "histogram": dict(each.histogram)}
            for name, each in (("wait", told.wait), ("run", told.run))
        }
        return {**measures, "retries": told.retries, "failures": told.failures, "failed": told.failed}
