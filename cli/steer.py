"""``ferryman steer``: does something to some jobs, by their ids, or to all that match a filter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from attrs import frozen

from ..operations.steering import Bulk, Controls
from ..schema.connection.address import Address
from ..schema.errors import UsageError
from ..schema.job import State
from ..schema.steering import Action, JobFilter, Value
from ..schema.text import plural, to_bytes
from .duration import DURATION
from .options import address_argument, output_option
from .output import Output
from .status import Status
from .steering import ask, audit_log_option, controls, dry_run_option, numbers, telling, untold, yes_option

DONE = {
    Action.PROMOTE: "promoted",
    Action.REPRIORITISE: "reprioritised",
    Action.EDIT: "edited",
    Action.MOVE: "moved",
    Action.REQUEUE: "requeued",
    Action.CANCEL: "cancelled",
    Action.DELETE: "deleted",
}
OPTION = {Action.MOVE: "--to", Action.REPRIORITISE: "--priority", Action.EDIT: "--payload"}
"""The option with what an action needs."""
WHY = {
    "missing": "there is no such job",
    "held": "a worker has it",
    "refused": "its state does not fit",
}
AMERICAN = {"reprioritize": "reprioritise"}


def _action(_ctx: click.Context, _param: click.Parameter, value: str) -> Action:
    return Action(AMERICAN.get(value, value))


def _payload(ctx: click.Context, param: click.Parameter, value: str | None) -> bytes | None:
    """The text itself, or with an @ before it the bytes of a file."""
    if value is None or not value.startswith("@"):
        return None if value is None else to_bytes(value)
    try:
        return Path(value[1:]).read_bytes()
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"the file {value[1:]!r} can't be read: {error}", ctx, param) from None


@frozen
class Wish:
    """What is to be done."""

    action: Action
    value: Value
    chosen: JobFilter
    dry_run: bool

    @property
    def word(self) -> str:
        """How it reads when it is done."""
        return f"would be {DONE[self.action]}" if self.dry_run else DONE[self.action]


@click.command()
@address_argument()
@click.argument("action", type=click.Choice([*map(str, Action), *AMERICAN]), callback=_action)
@click.argument("ids", nargs=-1, metavar="[ID...]")
@click.option("--queue", "queues", multiple=True, help="Only jobs of this queue; may be given several times.")
@click.option(
    "--state", "states", type=click.Choice([str(each) for each in State]), multiple=True, help="Only jobs in this state."
)
@click.option("--task", help="Only jobs of this task.")
@click.option("--older-than", type=DURATION, help="Only jobs created, or dead, for at least 90s, 30m, 2h or 7d.")
@click.option("--younger-than", type=DURATION, help="Only jobs created, or dead, for less than that.")
@click.option("--text", help="Only jobs whose payload contains this text, as it stands in Redis.")
@click.option("--reason", help="Only jobs that died of this: the reason exactly, or a part of the error.")
@click.option("--all", "is_all", is_flag=True, help="All jobs that the action is for.")
@click.option("--to", help="With move: the queue to move to.")
@click.option("--priority", type=float, help="With reprioritise: the new priority, in the system's own numbers.")
@click.option(
    "--payload", callback=_payload, metavar="TEXT|@FILE", help="With edit: the new payload, or @ and a file that has it."
)
@dry_run_option
@yes_option
@audit_log_option
@output_option
@click.pass_obj
def command(
    app: Any,
    url: Address,
    action: Action,
    ids: tuple[str, ...],
    queues: tuple[str, ...],
    states: tuple[str, ...],
    task: str | None,
    older_than: int | None,
    younger_than: int | None,
    text: str | None,
    reason: str | None,
    is_all: bool,
    to: str | None,
    priority: float | None,
    payload: bytes | None,
    dry_run: bool,
    yes: bool,
    audit_log: Path | None,
    output: Output,
) -> Status:
    """Promote, reprioritise, edit, move, requeue, cancel or delete jobs: those with the ids, or all that match.

    promote: a scheduled job waits from now on. requeue: a dead one waits again, with a clean record. cancel: one that nobody has
    begun never runs. What a worker has is never touched. All that match are changed in the server, in steps that others don't
    notice, after a question that --yes answers. Exit status 1 if some jobs could not be changed.

    \b
    Examples:
      ferryman steer ferryman://localhost:6379/0 promote producer-17
      ferryman steer ferryman://localhost:6379/0 requeue --queue mail --reason Timeout --older-than 1h
      ferryman steer ferryman://localhost:6379/0 move --queue mail --task app.send --to bulk --dry-run
      ferryman steer ferryman://localhost:6379/0 edit producer-18 --payload '[["ann@example.org"], {}, {}]'
    """
    values = {Action.MOVE: to, Action.REPRIORITISE: priority, Action.EDIT: payload}
    for each, value in values.items():
        if value is None and each is action:
            raise UsageError(f"{action} needs {OPTION[each]}")
        if value is not None and each is not action:
            raise UsageError(f"{OPTION[each]} is for {each} only")
    chosen = JobFilter(task, older_than, younger_than, None if text is None else to_bytes(text), reason)
    wish = Wish(action, values.get(action), chosen, dry_run)
    is_narrow = bool(queues or states or chosen != JobFilter())
    if ids and (states or chosen != JobFilter() or is_all):
        raise UsageError("give ids, or say which jobs by --state, --task and the like, not both")
    if not ids and not (is_all or is_narrow):
        raise UsageError(f"say which jobs to {action}: ids, --queue, --state, --task, --older-than, --text, --reason, or --all")
    if text == "" or reason == "" or task == "":
        raise UsageError("an empty --text, --reason or --task fits every job; leave it out, or say --all")
    with controls(url, audit_log, app) as found:
        able = found.states(action)
        if not able:
            raise UsageError(f"{action} can't be done to jobs of {url.family} from here; use its own tools")
        note = untold(url, app, "steer cancel") if action is Action.CANCEL and not dry_run else ""
        if ids:
            return _each(found, wish, ids, queues, output, note)
        wanted = [State(state) for state in states] or _usual(action, able)
        for state in wanted:
            if state not in able:
                usual = ", ".join(each for each in State if each in able)
                raise UsageError(f"{action} does nothing to {state} jobs; it is for these: {usual}")
        return _matching(found, wish, queues or tuple(found.queues()), wanted, yes, output, note)


def _usual(action: Action, able: frozenset[State]) -> list[State]:
    """The states that are meant where none was said."""
    if action is Action.DELETE:
        raise UsageError("say by --state which jobs to delete: waiting, scheduled, failed …; it may be given several times")
    return [state for state in State if state in able]


def _each(found: Controls, wish: Wish, ids: tuple[str, ...], queues: tuple[str, ...], output: Output, note: str) -> Status:
    status, is_any_done = Status.FINE, False
    for job_id in dict.fromkeys(ids):
        places = found.find(job_id, queues)
        if not places:
            status = Status.FINDINGS
            _tell(wish, None, job_id, "missing", output)
        for queue in places:
            outcome = "done" if wish.dry_run else found.act(wish.action, queue, job_id, wish.value)
            is_any_done |= outcome == "done"
            status = status if outcome == "done" else Status.FINDINGS
            _tell(wish, queue, job_id, outcome, output)
    if note and is_any_done:
        output.note(f"ferryman: {note}")
    return status


def _tell(wish: Wish, queue: str | None, job_id: str, outcome: str, output: Output) -> None:
    if output.json:
        output.line({"queue": queue, "id": job_id, "action": str(wish.action), "dry_run": wish.dry_run, "outcome": outcome})
    elif outcome == "done":
        output.say(f"queue {queue}: {job_id} {wish.word}")
    else:
        output.note(f"not {DONE[wish.action]}: {job_id}{f' of queue {queue}' if queue else ''}, {WHY[outcome]}")


def _matching(
    found: Controls, wish: Wish, queues: tuple[str, ...], states: list[State], yes: bool, output: Output, note: str
) -> Status:
    if not (wish.dry_run or yes):
        number = sum(_bulk(found, wish, queue, state, True).done for queue in queues for state in states)
        ask(f"{wish.action.capitalize()} {number} {plural(number, 'job')} of {_few(queues)}?", output, yes)
    done, left = 0, 0
    with output.progress() as report:
        for queue in queues:
            for state in states:
                bulk = found.act_on_matching(
                    wish.action,
                    queue,
                    state,
                    wish.chosen,
                    wish.value,
                    dry_run=wish.dry_run,
                    progress=telling(report, f"{wish.action} {state} of {queue}"),
                )
                done, left = done + bulk.done, left + bulk.left
                if output.json:
                    said = {"queue": queue, "state": str(state), "action": str(wish.action), "dry_run": wish.dry_run}
                    output.line(said | numbers(bulk))
                elif bulk.done or bulk.left:
                    rest = f", {bulk.left} could not be" if bulk.left else ""
                    output.say(f"queue {queue}: {bulk.done} {state} {wish.word}{rest}")
                else:
                    output.say(f"queue {queue}: no {state} job fits")
    if note and done:
        output.note(f"ferryman: {note}")
    return Status.FINDINGS if left else Status.FINE


def _bulk(found: Controls, wish: Wish, queue: str, state: State, dry_run: bool) -> Bulk:
    return found.act_on_matching(wish.action, queue, state, wish.chosen, wish.value, dry_run=dry_run)


def _few(queues: tuple[str, ...]) -> str:
    names = ", ".join(queues[:5])
    return f"queue {names}" if len(queues) == 1 else f"queues {names}{' …' if len(queues) > 5 else ''}"
