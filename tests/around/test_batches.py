"""celery-batches holds messages in the worker until it has enough of them."""

from __future__ import annotations

import pytest

from ..support.around import app_of, said
from ..support.command import ferryman
from ..support.topologies import wait_until
from ..support.workers import worker

pytest.importorskip("celery_batches")


def test_batches_are_filled_and_what_is_delayed_joins_when_it_is_due(server, ledger, tmp_path):
    said(server, "batches", "for n in range(12): gather.delay(n)\ngather.apply_async(('later',), countdown=2)")
    with worker(server, tmp_path, concurrency=1, app=app_of("batches")):
        lines = ledger.wait(lambda lines: sum(len(line["name"]) for line in lines) >= 13)
    names = [name for line in lines for name in line["name"]]
    assert names == [*range(12), "later"]
    assert [len(line["name"]) for line in lines[:2]] == [5, 5]


def test_a_batch_that_waits_to_be_full_is_backlog_and_outlives_its_worker(server, ledger, tmp_path):
    said(server, "batches", "for n in range(3): gather.delay(n)")
    with worker(server, tmp_path, concurrency=1, name="w1", app=app_of("batches"), lease=2, interval=600) as running:
        wait_until(lambda: ferryman("backlog", server.url(), "--format", "json").lines()[0]["active"] == 3)
        running.kill()
    assert ferryman("backlog", server.url()).stdout == "3\n"
    with worker(server, tmp_path, concurrency=1, name="w2", app=app_of("batches"), lease=2):
        ledger.wait(lambda lines: sum(len(line["name"]) for line in lines) >= 3)
