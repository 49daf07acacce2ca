"""The demo's ledger: every job gets exactly one fate, and what can't be explained is said."""

from __future__ import annotations

import pytest
from ferryman.cli.ledger import Event, Fate, account
from ferryman.schema.job import Job, State

JOB = Job(id="7", queue="q", name="q", state=State.WAITING)
KEY = ("q", "7")
KILLED, OTHER = "ferry-1@demo", "ferry-2@demo"


def start(worker):
    return Event("start", KEY, worker)


def end(worker):
    return Event("end", KEY, worker)


@pytest.mark.parametrize(
    ("refused", "events", "standing", "fate"),
    [
        ({}, [start(OTHER), end(OTHER)], {}, Fate.RUN_ONCE),
        ({}, [start(KILLED), start(OTHER), end(OTHER)], {}, Fate.RUN_AGAIN),
        ({}, [start(KILLED), end(KILLED), start(OTHER), end(OTHER)], {}, Fate.RUN_AGAIN),
        ({}, [], {KEY: State.SCHEDULED}, Fate.SCHEDULED),
        ({}, [], {KEY: State.COMPLETED}, Fate.COMPLETED),
        ({}, [], {KEY: State.FAILED}, Fate.DEAD),
        ({"7": "KUE-2"}, [], {}, Fate.REFUSED),
    ],
)
def test_a_job_that_is_accounted_for_balances_the_ledger(refused, events, standing, fate):
    ledger = account([JOB], refused, events, standing, KILLED)
    assert list(ledger.entries) == [fate]
    assert ledger.jobs == 1
    assert ledger.balanced


@pytest.mark.parametrize(
    ("refused", "events", "standing"),
    [
        ({}, [], {}),
        ({}, [], {KEY: State.WAITING}),
        ({}, [start(OTHER)], {}),
        ({}, [start(OTHER), end(OTHER), start(OTHER), end(OTHER)], {}),
        ({}, [start(OTHER), end(OTHER)], {KEY: State.WAITING}),
        ({"7": "KUE-2"}, [start(OTHER), end(OTHER)], {}),
        ({"7": "KUE-2"}, [], {KEY: State.WAITING}),
    ],
    ids=[
        "gone",
        "never run",
        "not ended",
        "run twice for no reason",
        "run and still there",
        "refused but run",
        "refused but there",
    ],
)
def test_a_job_that_is_not_accounted_for_is_never_hidden(refused, events, standing):
    ledger = account([JOB], refused, events, standing, KILLED)
    assert list(ledger.entries) == [Fate.UNACCOUNTED]
    assert not ledger.balanced
