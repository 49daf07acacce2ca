"""The pure model of one native queue: what the scripts must do, in plain Python, without a server.

Every method has the name, the arguments and the result of its transition in ``QueueScripts``; the state machine compares both.
"""

from __future__ import annotations

from attrs import define, field
from ferryman.schema.histogram import BUCKETS, NO_TIMES, Histogram, bound_ms
from ferryman.schema.native.scripts.waiting_score import IMPORTED, score_of, sequence_of


def observed(ms: int) -> Histogram:
    """The histogram of one time. One that was promoted before it was due has waited for nothing."""
    ms = max(ms, 0)
    bucket = min(bucket for bucket in range(BUCKETS) if ms <= bound_ms(bucket))
    return Histogram(tuple(int(bucket == each) for each in range(BUCKETS)), ms)


@define
class ModelJob:
    """A job that exists. ``last_holder`` is the consumer whose late ack still counts."""

    score: int
    ready_ms: int
    """When it could be taken for the first time."""
    was_taken: bool = False
    taken_ms: int | None = None
    expires_at: int | None = None
    deliveries: int = 0
    last_holder: str | None = None
    reason: str | None = None
    unique: str | None = None


@define
class QueueModel:
    """The queue: each job id stands in exactly one of ``waiting``, ``scheduled`` (with its due time), ``held`` and ``dead``.

    ``outbox``: the dead jobs that are to go to the dead letter exchange, if there is one, in the order in which they died.
    ``keys``: dedup key -> the job that holds it.
    """

    forwards: bool = False
    jobs: dict[str, ModelJob] = field(factory=dict)
    waiting: set[str] = field(factory=set)
    scheduled: dict[str, int] = field(factory=dict)
    held: dict[str, set[str]] = field(factory=dict)
    dead: set[str] = field(factory=set)
    outbox: list[str] = field(factory=list)
    keys: dict[str, str] = field(factory=dict)
    leases: dict[str, int] = field(factory=dict)
    counters: dict[str, int] = field(factory=dict)
    paused: bool = False
    moves: list[str] = field(factory=list)
    """The dead jobs on the way to another queue, in the order in which they were sent there."""
    arrived: list[str] = field(factory=list)
    """What the other queue has got, in its order."""
    sequence: int = IMPORTED
    wait: Histogram = NO_TIMES
    run: Histogram = NO_TIMES

    def count(self, name: str, number: int = 1) -> None:
        if number:
            self.counters[name] = self.counters.get(name, 0) + number

    def note_run(self, job: str, now: int) -> None:
        """A consumer has said that it is done with the job."""
        taken_ms = self.jobs[job].taken_ms
        if taken_ms is not None:
            self.run += observed(now - taken_ms)

    def in_order(self) -> list[str]:
        """The waiting ids in pop order."""
        return sorted(self.waiting, key=lambda job: self.jobs[job].score)

    def publish(self, job: str, priority: int, due: int | None, ttl: int | None, unique: str | None, now: int) -> bool:
        if unique in self.keys:
            self.count("deduplicated")
            return False
        self.sequence += 1
        start = now if due is None else max(due, now)
        self.jobs[job] = ModelJob(
            score_of(priority, self.sequence), start, expires_at=None if ttl is None else start + ttl, unique=unique
        )
        if unique is not None:
            self.keys[unique] = job
        if due is not None and due > now:
            self.scheduled[job] = due
        else:
            self.waiting.add(job)
        self.count("published")
        return True

    def promote(self, now: int) -> int:
        due = [job for job, when in self.scheduled.items() if when <= now]
        for job in due:
            del self.scheduled[job]
            self.waiting.add(job)
        return len(due)

    def reclaim(self, now: int) -> int:
        moved = 0
        for consumer in [each for each, end in self.leases.items() if end <= now]:
            ids = self.held.pop(consumer, set())
            self.waiting |= ids
            moved += len(ids)
            del self.leases[consumer]
        self.count("reclaimed", moved)
        return moved

    def dead_letter(self, job: str, reason: str) -> None:
        self.dead.add(job)
        self.jobs[job].reason = reason
        self.release_key(job)
        if self.forwards:
            self.outbox.append(job)
        self.count("dead")
        if reason == "expired":
            self.count("expired")

    def release_key(self, job: str) -> None:
        unique = self.jobs[job].unique
        if unique is not None and self.keys.get(unique) == job:
            del self.keys[unique]

    def end(self, job: str) -> None:
        """The job exists no more."""
        self.release_key(job)
        self.remove_dead(job)
        del self.jobs[job]

    def remove_dead(self, job: str) -> None:
        self.dead.discard(job)
        for outgoing in (self.outbox, self.moves):
            if job in outgoing:
                outgoing.remove(job)

    def forward(self, arrived: list[bool]) -> int:
        """What becomes of the first dead letters of the outbox."""
        for job, has_arrived in zip(self.outbox[: len(arrived)], arrived, strict=True):
            self.outbox.remove(job)
            if has_arrived:
                self.end(job)
        self.count("forwarded", sum(arrived))
        return sum(arrived)

    def expire_first(self, now: int) -> None:
        """Gives up the jobs at the head of waiting whose time is over."""
        for job in self.in_order():
            expires_at = self.jobs[job].expires_at
            if expires_at is None or expires_at > now:
                return
            self.waiting.remove(job)
            self.dead_letter(job, "expired")

    def take(self, consumer: str, n: int, lease: int, limit: int, now: int) -> list[str]:
        self.leases[consumer] = now + lease
        self.promote(now)
        self.reclaim(now)
        taken: list[str] = []
        for name in self.in_order():
            if len(taken) == n or self.paused:
                break
            job = self.jobs[name]
            self.waiting.remove(name)
            if job.expires_at is not None and job.expires_at <= now:
                self.dead_letter(name, "expired")
            elif job.deliveries >= limit:
                self.dead_letter(name, "delivery_limit")
            else:
                if not job.was_taken:
                    self.wait += observed(now - job.ready_ms)
                job.was_taken, job.taken_ms = True, now
                job.deliveries += 1
                job.last_holder = consumer
                self.held.setdefault(consumer, set()).add(name)
                taken.append(name)
        self.count("delivered", len(taken))
        self.count("redelivered", sum(self.jobs[name].deliveries > 1 for name in taken))
        self.renew_lease(consumer, lease, now)
        return taken

    def renew_lease(self, consumer: str, lease: int, now: int) -> None:
        self.leases[consumer] = now + (lease if self.held.get(consumer) else 2 * lease)

    def next_event(self, consumer: str, lease: int, now: int) -> int:
        others = [end for each, end in self.leases.items() if each != consumer]
        return min([now + lease, *self.scheduled.values(), *others])

    def holds(self, consumer: str, job: str) -> bool:
        return job in self.held.get(consumer, set())

    def ack(self, consumer: str, job: str, now: int) -> str:
        if self.holds(consumer, job):
            self.held[consumer].remove(job)
            verdict = "acked"
        elif job in self.jobs and self.jobs[job].last_holder == consumer and self._has_come_back(job):
            self.waiting.discard(job)
            verdict = "cancelled"
        else:
            return "lost"
        self.note_run(job, now)
        self.end(job)
        self.count(verdict)
        return verdict

    def _has_come_back(self, job: str) -> bool:
        return job in self.waiting or (job in self.dead and self.jobs[job].reason == "delivery_limit")

    def return_job(self, consumer: str, job: str) -> bool:
        if not self.holds(consumer, job):
            return False
        self.held[consumer].remove(job)
        self.waiting.add(job)
        self.jobs[job].last_holder = None
        return True

    def requeue(self, consumer: str, job: str) -> bool:
        back = self.return_job(consumer, job)
        self.count("requeued", int(back))
        return back

    def release(self, consumer: str, jobs: list[str]) -> int:
        released = 0
        for job in jobs:
            if self.return_job(consumer, job):
                self.jobs[job].deliveries -= 1
                released += 1
        self.count("released", released)
        return released

    def reject(self, consumer: str, job: str, now: int) -> bool:
        if not self.holds(consumer, job):
            return False
        self.note_run(job, now)
        self.held[consumer].remove(job)
        self.dead_letter(job, "rejected")
        return True

    def renew(self, consumer: str, lease: int, now: int) -> bool:
        if consumer not in self.leases:
            return False
        self.renew_lease(consumer, lease, now)
        return True

    def forget(self, consumer: str) -> int:
        released = self.release(consumer, list(self.held.get(consumer, set())))
        self.held.pop(consumer, None)
        self.leases.pop(consumer, None)
        return released

    def purge(self) -> int:
        gone = self.waiting | set(self.scheduled)
        for job in gone:
            self.end(job)
        self.waiting.clear()
        self.scheduled.clear()
        self.count("purged", len(gone))
        return len(gone)

    def remove(self, job: str) -> str | None:
        if any(job in ids for ids in self.held.values()):
            return "held"
        for name, standing in (("waiting", self.waiting), ("scheduled", set(self.scheduled)), ("dead", self.dead)):
            if job in standing:
                self.waiting.discard(job)
                self.scheduled.pop(job, None)
                self.end(job)
                self.count("removed")
                return name
        return None

    def revive(self, job: str) -> bool:
        if job not in self.dead or job in self.moves:
            return False
        self.remove_dead(job)
        self.waiting.add(job)
        unique = self.jobs[job].unique
        self.jobs[job] = ModelJob(self.jobs[job].score, self.jobs[job].ready_ms, taken_ms=self.jobs[job].taken_ms, unique=unique)
        if unique is not None:
            self.keys.setdefault(unique, job)
        self.count("revived")
        return True

    def pause(self) -> bool:
        was_paused, self.paused = self.paused, True
        return not was_paused

    def resume(self) -> bool:
        was_paused, self.paused = self.paused, False
        return was_paused

    def place(self, job: str) -> str | None:
        if any(job in ids for ids in self.held.values()):
            return "held"
        standing = (("waiting", self.waiting), ("scheduled", self.scheduled), ("dead", self.dead))
        return next((name for name, jobs in standing if job in jobs), None)

    def steer(self, action: str, job: str, value: int | None, now: int) -> str:
        """One action on one job, as ``NativeSteering.act``."""
        place = self.place(job)
        if place is None or place == "held":
            return place or "missing"
        if place not in STEERED[action] or job in self.moves:
            return "refused"
        if action == "promote":
            del self.scheduled[job]
            self.waiting.add(job)
            self.jobs[job].ready_ms = now
        elif action == "reprioritise":
            found = self.jobs[job]
            found.score = score_of(value or 0, sequence_of(found.score))
        elif action == "requeue":
            self.revive(job)
        elif action == "move":
            self.send_away(job, place)
        elif action in ("cancel", "delete"):
            self.remove(job)
        return "done"

    def send_away(self, job: str, place: str) -> None:
        self.waiting.discard(job)
        self.scheduled.pop(job, None)
        if job in self.outbox:
            self.outbox.remove(job)
        if place != "dead":
            self.release_key(job)
            self.jobs[job].reason = "moved"
        self.dead.add(job)
        self.moves.append(job)

    def move_at_once(self, job: str) -> None:
        """A move of one among many on one server; a job with a dedup key goes the long way."""
        if self.jobs[job].unique is not None:
            self.send_away(job, self.place(job) or "")
            return
        self.waiting.discard(job)
        self.scheduled.pop(job, None)
        self.arrived.append(job)
        self.end(job)
        self.count("moved")

    def settle(self) -> dict[str, str]:
        """All that is on the way arrives."""
        settled = dict.fromkeys(self.moves, "done")
        for job in list(self.moves):
            self.arrived.append(job)
            self.end(job)
        self.count("moved", len(settled))
        return settled

    def in_state(self, state: str, now: int) -> list[str]:
        """The jobs in a state, in the order of its index; what is due waits."""
        if state == "waiting":
            return self.in_order()
        if state == "scheduled":
            return sorted(self.scheduled, key=lambda job: (self.scheduled[job], job))
        return [job for job in self.dead if job not in self.moves]


STEERED = {
    "promote": {"scheduled"},
    "reprioritise": {"waiting", "scheduled"},
    "edit": {"waiting", "scheduled"},
    "requeue": {"dead"},
    "move": {"waiting", "scheduled", "dead"},
    "cancel": {"waiting", "scheduled"},
    "delete": {"waiting", "scheduled", "dead"},
}
"""Action -> the places from which it can be done."""
