"""Stories of qless made up at random: who puts, pops and ends what, at which time, with what set beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from attrs import define, field
from ferryman.compat.qless.live import Core

from .tellers import Teller

START = 1_795_000_000_125
QUEUES = ("mail", "höhle/b c")
WORKERS = ("web-1", "web-2")
JOBS = tuple(f"j{n}" for n in range(8))
TEMPLATES = ("every-1", "every-2")
TAGS = ("t1", "t2", "t3")
THROTTLES = ("x", "y")
PAUSES = (0, 1, 900, 5_000, 30_000, 61_000, 3_600_000)
"""ms between steps."""

Step = Callable[[Teller], Any]


@define
class Story:
    """The steps, made up as they are told, since whoever ends a job must have popped it. ``label``: what the last one was."""

    core: Core
    random: Random
    now: int = START
    label: str = ""
    _held: dict[str, tuple[str, str]] = field(factory=dict)
    """Who popped which job from which queue: also of jobs that they have lost since."""
    _groups: set[str] = field(factory=set)
    _templates: set[str] = field(factory=set)

    def beginning(self) -> Iterator[Step]:
        """What is set before the first job."""
        chosen = self.random
        if chosen.random() < 0.3:
            yield self._set("grace-period", chosen.choice((0, 3)))
        if chosen.random() < 0.3:
            yield self._set("heartbeat", chosen.choice((2, 20)))
        if chosen.random() < 0.3:
            yield self._set("max-job-history", chosen.choice((1, 2, 3, 5)))
        if chosen.random() < 0.3:
            yield self._set("jobs-history-count", 2)
        if self.core == "unified" and chosen.random() < 0.3:
            yield self._set("mail-max-concurrency", chosen.choice((1, 2)))
        if self.core == "reqless":
            for name in (*THROTTLES, "ql:q:mail"):
                if chosen.random() < 0.4:
                    maximum = chosen.choice((1, 2))
                    yield lambda teller, name=name, maximum=maximum: teller.throttle(START, name, maximum)
            if chosen.random() < 0.3:
                yield self._set("max-pop-retry", 2)

    def _set(self, option: str, value: int) -> Step:
        return lambda teller: teller.config(START, option, value)

    def step(self) -> Step | None:
        """The next step; None: nobody could do what came to mind."""
        self.now += self.random.choice(PAUSES)
        (name,) = self.random.choices(tuple(STEPS), tuple(STEPS.values()))
        self.label = f"{self.now - START} ms: {name}"
        step: Step | None = getattr(self, f"_{name}")()
        return step

    def popped(self, queue: str, worker: str, ids: list[str]) -> None:
        """Somebody has jobs now."""
        self._held.update(dict.fromkeys(ids, (queue, worker)))

    def _note(self, *words: Any) -> int:
        self.label += " " + " ".join(map(repr, words))
        return self.now

    def _some(self, names: tuple[str, ...], *counts: int) -> list[str]:
        return self.random.sample(names, self.random.choice(counts))

    def _put(self) -> Step:
        chosen = self.random
        queue, job = chosen.choice(QUEUES), chosen.choice(JOBS)
        others = tuple(each for each in JOBS if each != job)
        options: dict[str, Any] = {
            "priority": chosen.choice((0, 0, 1, -1, 2.5)),
            "retries": chosen.choice((0, 1, 2, 5)),
            "tags": self._some(TAGS, 0, 1, 2),
            "depends": self._some(others, 0, 0, 0, 1, 2),
            "throttles": self._some(THROTTLES, 0, 0, 1, 2),
            "delay": chosen.choice((0, 0, 0, 5, 100)),
        }
        if self.core == "unified" and options["depends"]:
            options["delay"] = 0
        if chosen.random() < 0.2:
            del options["priority"], options["tags"], options["retries"]
        now = self._note(queue, job, options)
        return lambda teller: teller.put(now, queue, job, {"n": 1, "of": "a/b"}, **options)

    def _pop(self) -> Step:
        queue, worker, n = self.random.choice(QUEUES), self.random.choice(WORKERS), self.random.choice((1, 1, 2, 5))
        now = self._note(queue, worker, n)

        def step(teller: Teller) -> list[str]:
            ids = teller.pop(now, queue, worker, n)
            self.popped(queue, worker, ids)
            return ids

        return step

    def _of_worker(self) -> tuple[str, str, str] | None:
        if not self._held:
            return None
        job = self.random.choice(sorted(self._held))
        queue, worker = self._held[job]
        if self.random.random() < 0.7:
            del self._held[job]
        return queue, worker, job

    def _complete(self) -> Step | None:
        held = self._of_worker()
        if held is None:
            return None
        onward: dict[str, Any] = {}
        if self.random.random() < 0.4:
            onward = {"next_queue": self.random.choice(QUEUES), "delay": self.random.choice((0, 0, 7))}
            others = tuple(each for each in JOBS if each != held[2])
            onward["depends"] = [] if onward["delay"] else self._some(others, 0, 0, 1)
        now = self._note(*held, onward)
        return lambda teller: teller.complete(now, *held, {"n": 2}, **onward)

    def _fail(self) -> Step | None:
        held = self._of_worker()
        if held is None:
            return None
        now = self._note(*held)
        self._groups.add("boom")
        return lambda teller: teller.fail(now, *held, "boom", {"n": [3]})

    def _retry(self) -> Step | None:
        held = self._of_worker()
        if held is None:
            return None
        delay, group = self.random.choice((0, 3)), self.random.choice((None, "again"))
        now = self._note(*held, delay, group)
        self._groups |= {"again", f"failed-retries-{held[0]}"}
        return lambda teller: teller.retry(now, *held, delay, group)

    def _heartbeat(self) -> Step | None:
        if not self._held:
            return None
        job = self.random.choice(sorted(self._held))
        queue, worker = self._held[job]
        now = self._note(queue, worker, job)
        return lambda teller: teller.heartbeat(now, queue, worker, job, {"n": 4})

    def _cancel(self) -> Step:
        ids = self._some(JOBS, 1, 1, 2)
        now = self._note(ids)
        return lambda teller: teller.cancel(now, ids)

    def _timeout(self) -> Step:
        job = self.random.choice((*JOBS, *self._held))
        now = self._note(job)
        return lambda teller: teller.timeout(now, job)

    def _depends(self) -> Step:
        job, change = self.random.choice(JOBS), self.random.choice(("on", "off", "none"))
        others = self._some(tuple(each for each in JOBS if each != job), 1, 2)
        now = self._note(job, change, others)
        return lambda teller: teller.depends(now, job, change, others)

    def _priority(self) -> Step:
        job, priority = self.random.choice(JOBS), self.random.choice((0, 5, -3, 0.5))
        now = self._note(job, priority)
        return lambda teller: teller.priority(now, job, priority)

    def _tag(self) -> Step:
        job, change, tags = self.random.choice(JOBS), self.random.choice(("add", "remove")), self._some(TAGS, 1, 2)
        now = self._note(job, change, tags)
        return lambda teller: teller.tag(now, job, change, tags)

    def _track(self) -> Step:
        job = self.random.choice(JOBS)
        now = self._note(job)
        return lambda teller: teller.track(now, job, "track")

    def _log(self) -> Step:
        job, data = self.random.choice(JOBS), self.random.choice((None, {"x": 1}))
        now = self._note(job, data)
        return lambda teller: teller.log(now, job, "hello", data)

    def _unfail(self) -> Step | None:
        if not self._groups:
            return None
        group, queue, n = self.random.choice(sorted(self._groups)), self.random.choice(QUEUES), self.random.choice((1, 2, 10))
        now = self._note(group, queue, n)
        return lambda teller: teller.unfail(now, group, queue, n)

    def _recur(self) -> Step:
        chosen = self.random
        queue, job, interval = chosen.choice(QUEUES), chosen.choice(TEMPLATES), chosen.choice((60, 1800, 90.5))
        options = {
            "offset": chosen.choice((0, 10)),
            "priority": chosen.choice((0, 3)),
            "retries": chosen.choice((0, 2)),
            "backlog": chosen.choice((0, 0, 1, 3)),
            "tags": self._some(TAGS, 0, 1),
            "throttles": self._some(THROTTLES, 0, 1),
        }
        now = self._note(queue, job, interval, options)
        self._templates.add(job)
        return lambda teller: teller.recur(now, queue, job, interval, **options)

    def _unrecur(self) -> Step:
        job = self.random.choice(TEMPLATES)
        now = self._note(job)
        self._templates.discard(job)
        return lambda teller: teller.unrecur(now, job)

    def _update(self) -> Step | None:
        if not self._templates:
            return None
        job = self.random.choice(sorted(self._templates))
        queue = self.random.choice(QUEUES)
        changes = (
            ("priority", 4),
            ("interval", 33),
            ("retries", 3),
            ("klass", "shop.Other"),
            ("queue", queue),
            ("data", {"z": 1}),
        )
        name, value = self.random.choice(changes)
        now = self._note(job, name, value)
        return lambda teller: teller.update(now, job, name, value)

    def _peek(self) -> Step:
        queue, n = self.random.choice(QUEUES), self.random.choice((1, 3))
        now = self._note(queue, n)
        return lambda teller: teller.peek(now, queue, n)

    def _pause(self) -> Step:
        queue, is_over = self.random.choice(QUEUES), self.random.random() < 0.7
        now = self._note(queue, is_over)
        return lambda teller: teller.pause(now, queue, is_over=is_over)

    def _counts(self) -> Step:
        now = self.now
        return lambda teller: teller.counts(now)

    def _workers(self) -> Step:
        now = self.now
        return lambda teller: teller.workers(now)

    def _stats(self) -> Step:
        queue = self.random.choice(QUEUES)
        now = self._note(queue)
        return lambda teller: teller.stats(now, queue)


STEPS = {
    "put": 4,
    "pop": 4,
    "complete": 2,
    "depends": 2,
    **dict.fromkeys(("fail", "retry", "heartbeat", "cancel", "timeout", "priority", "tag", "track", "log", "unfail"), 1),
    **dict.fromkeys(("recur", "update", "unrecur", "peek", "pause", "counts", "workers", "stats"), 1),
}
"""How often each step comes to mind."""
