"""Steering a live keyspace: sends the actions of ``schema/steering.py``, one or all that match, and keeps a record of each.

For the command line, the web page and ``ferryman top``:

    with open_steering(address, by="ann", sinks=[JsonLines(path)]) as steering:
        steering.pause("mail")
        steering.act(Action.REQUEUE, "mail", "pub-17")
        steering.act_on_matching(Action.DELETE, "mail", State.FAILED, JobFilter(reason="expired"), progress=print)

All that match are acted on in the server, in steps short enough that others don't notice. A family without such a script has its
jobs read a page at a time, and each acted on by itself.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from attrs import define, evolve, frozen

from ..migrations.local import LocalEngine
from ..schema.connection.address import DEFAULT_FAMILY, Address, Kind
from ..schema.connection.call import Command
from ..schema.errors import UsageError
from ..schema.job import State
from ..schema.native.scripts.queue_scripts import QueueScripts
from ..schema.steering import Action, BulkStep, JobFilter, Outcome, Steering, Value
from ..transport.connection.link import ServerLink
from ..transport.publish.revocation import durable_queues
from . import pages
from .actions import ActionRecord, Sink, shown
from .broker import open_link
from .cancelled import CancelledTasks, Tell

PAGE = 200
"""Jobs that one round trip acts on, where each is acted on by itself."""
SETTLED = 100
"""Jobs on the way to another queue, of which a bulk action does not let there be many more."""
BREATH = 0.0002
"""Seconds between the steps of a bulk action, in which the server is others'."""
DRAINED = (State.WAITING, State.SCHEDULED)
"""What is gone after a drain."""

Progress = Callable[["Bulk"], None]


@frozen
class Bulk:
    """What a bulk action has done so far."""

    looked_at: int = 0
    done: int = 0
    """Jobs on which the action was done; in a dry run, would be."""
    left: int = 0
    """Jobs that match and could not be acted on."""

    def plus(self, step: BulkStep) -> Bulk:
        """With what one step more has done."""
        return Bulk(self.looked_at + step.looked_at, self.done + step.done, self.left + step.left)

    def plus_outcomes(self, outcomes: Iterable[Outcome]) -> Bulk:
        """With what has become of jobs that were acted on one by one."""
        found = list(outcomes)
        done = sum(outcome == "done" for outcome in found)
        return evolve(self, done=self.done + done, left=self.left + len(found) - done)


@contextlib.contextmanager
def open_steering(
    address: Address, *, by: str = "", sinks: Sequence[Sink] = (), tell_cancelled: Tell | None = None, **overrides: Any
) -> Iterator[Controls]:
    """The actions on the keyspace at an address, for the length of the block, in which a failing server is a ServerError.

    ``by``: who acts, for the records, which go to each of ``sinks``. ``tell_cancelled`` is given the tasks of ferryman's own
    queues that are cancelled, when they are gone. ``overrides`` go to redis-py's connections.
    Raises UsageError for a snapshot file and for a family that can't be steered.
    """
    if address.kind is Kind.RDB:
        raise UsageError("a snapshot file can't be steered; give the address of a server")
    steering = address.key_family.steering(address.prefix)
    if steering is None:
        raise UsageError(f"nothing can be done to the queues and jobs of {address.family} from here; use its own tools")
    with open_link(address, **overrides) as link:
        if tell_cancelled is None or address.family != DEFAULT_FAMILY:
            yield Controls(address, steering, link, by, tuple(sinks))
            return
        with CancelledTasks(tell_cancelled) as cancelled:
            yield Controls(address, steering, link, by, tuple(sinks), cancelled)


@frozen
class Controls:
    """What can be done, over one connection. Every method raises ServerError, and UsageError for what can't be done at all."""

    address: Address
    steering: Steering
    link: ServerLink
    by: str
    sinks: tuple[Sink, ...]
    cancelled: CancelledTasks | None = None

    # What can be done

    def states(self, action: Action) -> frozenset[State]:
        """The states of jobs to which an action can be done; none for an action that the family can't do."""
        return self.steering.actions.get(action, frozenset())

    @property
    def can_pause(self) -> bool:
        """Whether queues of the family can be paused."""
        return self.steering.can_pause

    def queues(self) -> list[str]:
        """The queues that last, of ferryman's own; those of other systems that their jobs name."""
        if self.address.family == DEFAULT_FAMILY:
            return durable_queues(self.link, QueueScripts(self.address.prefix))
        return [status.queue for status in LocalEngine().queues(self.address, self._now_ms())]

    def find(self, job_id: str, queues: Sequence[str] = ()) -> list[str]:
        """In which of these queues, or of all that last, there is a job with this id.

        In other systems it is looked for by the action itself, so the queue must be given: UsageError.
        """
        if self.address.family != DEFAULT_FAMILY:
            if not queues:
                raise UsageError(f"say by --queue in which queue of {self.address.family} the job is")
            return list(queues)
        scripts = QueueScripts(self.address.prefix)
        places = list(queues) or self.queues()
        calls = [Command(("EXISTS", scripts.keys(queue).job(job_id)), bool) for queue in places]
        found = self.link.run_all(calls) if calls else []
        return [queue for queue, is_there in zip(places, found, strict=True) if is_there]

    # Queues

    def pause(self, queue: str) -> bool:
        """Nothing is taken from the queue until ``resume``; publishing goes on. False: it was paused already."""
        self._check_pause()
        with self._recorded("pause", queue) as note:
            changed: bool = self.link.run(self.steering.pause(queue))
            note.outcome = "done" if changed else "paused already"
        return changed

    def resume(self, queue: str) -> bool:
        """Jobs of the queue are taken again. False: it was not paused."""
        self._check_pause()
        with self._recorded("resume", queue) as note:
            changed: bool = self.link.run(self.steering.resume(queue))
            note.outcome = "done" if changed else "not paused"
        return changed

    def paused(self, queues: Iterable[str]) -> frozenset[str]:
        """Which of these queues are paused; none where the family knows no pauses."""
        calls = {queue: call for queue in queues if (call := self.steering.paused(queue)) is not None}
        found = self.link.run_all(list(calls.values())) if calls else []
        return frozenset(queue for queue, is_paused in zip(calls, found, strict=True) if is_paused)

    def drain(self, queue: str, *, dry_run: bool = False, progress: Progress | None = None) -> Bulk:
        """Deletes what waits in a queue or is scheduled there, but for what comes meanwhile. Held and failed jobs stay."""
        states = [state for state in DRAINED if state in self.states(Action.DELETE)]
        if not states:
            raise UsageError(f"the queues of {self.address.family} can't be drained from here; use its own tools")
        with self._recorded("drain", queue, is_dry=dry_run) as note:
            tell = note.follow(progress)
            for state in states:
                tell(self._on_matching(Action.DELETE, queue, state, JobFilter(), None, dry_run, tell, note.bulk or Bulk()))
        return note.bulk or Bulk()

    # Jobs

    def act(self, action: Action, queue: str, job_id: str, value: Value = None) -> Outcome:
        """One action on one job; see ``Steering.act`` for what it may raise."""
        call = self.steering.act(action, queue, job_id, value)
        with self._recorded(action, queue, job_id, value) as note:
            self._begin(action, queue, value)
            (outcome,) = self._each_by_itself([call], action, queue, [job_id])
            note.outcome = outcome
        return outcome

    def act_on_matching(
        self,
        action: Action,
        queue: str,
        state: State,
        chosen: JobFilter,
        value: Value = None,
        *,
        dry_run: bool = False,
        progress: Progress | None = None,
    ) -> Bulk:
        """An action on all jobs of a queue in a state that match, but for those that come meanwhile.

        ``dry_run``: only counts them. ``progress`` is called after each step. An interrupt leaves done what is done.
        """
        if state not in self.states(action):
            raise UsageError(f"{action} can't be done to {state} jobs of {self.address.family}")
        with self._recorded(action, queue, None, value, state, chosen, is_dry=dry_run) as note:
            tell = note.follow(progress)
            found = self._on_matching(action, queue, state, chosen, value, dry_run, tell, Bulk())
            note.bulk = found
        return found

    # How

    def _check_pause(self) -> None:
        if not self.steering.can_pause:
            raise UsageError(f"the queues of {self.address.family} can't be paused from here; use its own tools")

    def _on_matching(
        self,
        action: Action,
        queue: str,
        state: State,
        chosen: JobFilter,
        value: Value,
        dry_run: bool,
        progress: Progress,
        found: Bulk,
    ) -> Bulk:
        self._begin(action, queue, value, dry_run)
        cursor: str | None = None
        moving = 0
        while True:
            call = self.steering.act_on_matching(
                action,
                queue,
                state,
                chosen,
                value,
                cursor=cursor,
                dry_run=dry_run,
                with_removed=self.cancelled is not None,
                one_server=self.address.kind is not Kind.CLUSTER,
            )
            if call is None:
                return self._page_by_page(action, queue, state, chosen, value, dry_run, progress, found)
            step: BulkStep = self.link.run(call)
            found = found.plus(step)
            if self.cancelled is not None:
                for job_id, message in step.removed:
                    self.cancelled.add(job_id, message)
            moving += step.moving
            if moving >= SETTLED or (moving and step.next is None):
                moving = 0
                refused = sum(outcome != "done" for outcome in self._settle(queue).values())
                found = evolve(found, done=found.done - refused, left=found.left + refused)
                if refused:
                    raise UsageError(
                        f"queue {value!r} takes no more: {refused} jobs wait to go there, among the failed ones of {queue!r}; "
                        "the next action on that queue takes them along when there is room"
                    )
            ids = [job_id for job_id in step.unread if self._fits(queue, job_id, chosen)]
            found = self._each(action, queue, ids, value, dry_run, found)
            progress(found)
            if step.next is None:
                return found
            cursor = step.next
            time.sleep(BREATH)

    def _fits(self, queue: str, job_id: str, chosen: JobFilter) -> bool:
        """Whether a job that the server has not looked into is meant; its age and state were seen."""
        read: Any = self.link.run(self.steering.job(queue, job_id))
        narrowed = evolve(chosen, older_than_ms=None, younger_than_ms=None)
        return read is not None and narrowed.fits(read[0], 0, read[1])

    def _page_by_page(
        self,
        action: Action,
        queue: str,
        state: State,
        chosen: JobFilter,
        value: Value,
        dry_run: bool,
        progress: Progress,
        found: Bulk,
    ) -> Bulk:
        """All that match are read first: positions shift while jobs leave."""
        now_ms = self._now_ms()
        ids: list[str] = []
        for job in self._jobs(queue, state, now_ms):
            found = evolve(found, looked_at=found.looked_at + 1)
            if chosen.fits(job, now_ms):
                ids.append(job.id)
        rest = iter(ids)
        while some := list(islice(rest, PAGE)):
            found = self._each(action, queue, some, value, dry_run, found)
            progress(found)
        return found

    def _jobs(self, queue: str, state: State, now_ms: int) -> Iterator[Any]:
        """The jobs of a queue in a state, from its index where there is one and they are not most of all jobs that there are."""
        if pages.is_most_of_all(self.address, queue, state) is not False:
            yield from LocalEngine().jobs(self.address, now_ms, queue, state)
            return
        page = pages.page(self.address, queue, state, PAGE, now_ms=now_ms)
        while page is not None:
            yield from page.jobs
            page = pages.page(self.address, queue, state, PAGE, page.next, now_ms=now_ms) if page.next else None

    def _each(self, action: Action, queue: str, ids: Sequence[str], value: Value, dry_run: bool, found: Bulk) -> Bulk:
        """The action on each of these jobs by itself."""
        if dry_run or not ids:
            return evolve(found, done=found.done + len(ids))
        calls = [self.steering.act(action, queue, job_id, value) for job_id in ids]
        return found.plus_outcomes(self._each_by_itself(calls, action, queue, ids))

    def _each_by_itself(self, calls: Sequence[Any], action: Action, queue: str, ids: Sequence[str]) -> list[Outcome]:
        """Sends calls about some jobs; who cancels reads each before, one at a time, because messages may be large."""
        if self.cancelled is None or action is not Action.CANCEL:
            return self._run(calls, action, queue, ids)
        job = QueueScripts(self.address.prefix).keys(queue).job
        outcomes: list[Outcome] = []
        for call, job_id in zip(calls, ids, strict=True):
            message = self.link.command("HGET", job(job_id), "message")
            outcomes += self._run([call], action, queue, [job_id])
            if outcomes[-1] == "done":
                self.cancelled.add(job_id, message or b"")
        return outcomes

    def _run(self, calls: Sequence[Any], action: Action, queue: str, ids: Sequence[str]) -> list[Outcome]:
        """Sends calls about some jobs, again for those of which only a part is done, and what has to follow."""
        outcomes: list[Outcome] = self.link.run_all(calls)
        for at, call in enumerate(calls):
            while outcomes[at] == "more":
                outcomes[at] = self.link.run(call)
        settled = self._settle(queue) if action is Action.MOVE else {}
        return [settled.get(job_id, outcome) for job_id, outcome in zip(ids, outcomes, strict=True)]

    def _begin(self, action: Action, queue: str, value: Value, dry_run: bool = False) -> None:
        """Asks whether an action can be done at all, and ends what others have left undone."""
        call = self.steering.check(action, queue, value)
        if call is not None:
            self.link.run(call)
        if not dry_run:
            self._settle(queue)

    def _settle(self, queue: str) -> dict[str, Outcome]:
        steps = self.steering.settle(queue)
        try:
            calls = next(steps)
            while True:
                calls = steps.send(self.link.run_all(calls))
        except StopIteration as end:
            outcomes: dict[str, Outcome] = end.value
            return outcomes

    def _now_ms(self) -> int:
        seconds, microseconds = self.link.command("TIME")
        return int(seconds) * 1000 + int(microseconds) // 1000

    @contextlib.contextmanager
    def _recorded(
        self,
        action: str,
        queue: str,
        job_id: str | None = None,
        value: Value = None,
        state: State | None = None,
        chosen: JobFilter | None = None,
        *,
        is_dry: bool = False,
    ) -> Iterator[Note]:
        """Records what happens in the block, an error too; nothing of a dry run."""
        note = Note()
        try:
            yield note
        except BaseException as error:
            note.outcome = f"{type(error).__name__}: {error}"
            raise
        finally:
            if not is_dry:
                record = ActionRecord(
                    at_ms=time.time_ns() // 1_000_000,
                    by=self.by,
                    keyspace=self.address.display(),
                    action=str(action),
                    queue=queue,
                    job_id=job_id,
                    value=shown(value),
                    state=None if state is None else str(state),
                    chosen=None if chosen is None else chosen.to_dict(),
                    outcome=note.outcome,
                    done=None if note.bulk is None else note.bulk.done,
                    left=None if note.bulk is None else note.bulk.left,
                )
                for sink in self.sinks:
                    sink(record)


@define
class Note:
    """What has come of an action so far, for its record."""

    outcome: str = "done"
    bulk: Bulk | None = None

    def follow(self, progress: Progress | None) -> Progress:
        """Takes the progress of a bulk action, and hands it on."""
        self.bulk = Bulk()

        def tell(so_far: Bulk) -> None:
            self.bulk = so_far
            if progress is not None:
                progress(so_far)

        return tell
