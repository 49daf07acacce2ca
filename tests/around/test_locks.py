"""celery-once and celery-singleton keep their locks in Redis by themselves; ferryman:// has a lock of its own."""

from __future__ import annotations

import pytest

from ..support.around import OWN_DB, app_of, own_url, python, said
from ..support.command import ferryman
from ..support.topologies import wait_until
from ..support.workers import worker

pytest.importorskip("celery_once")
pytest.importorskip("celery_singleton")


def backlog(server) -> int:
    return int(ferryman("backlog", server.url()).stdout)


def test_celery_once_refuses_a_second_copy_until_the_first_has_run(server, ledger, tmp_path):
    twice = "once.delay('a')\ntry:\n    once.delay('a')\nexcept AlreadyQueued:\n    print('refused')"
    assert said(server, "locks", twice) == "refused"
    assert backlog(server) == 1
    with worker(server, tmp_path, pool="solo", app=app_of("locks"), own=own_url(server)):
        ledger.wait_for("run", 1)
        with server.client(OWN_DB) as locks:
            wait_until(lambda: not locks.keys())
        said(server, "locks", "once.delay('a')")
        ledger.wait_for("run", 2)


def test_celery_singleton_gives_the_first_copy_until_it_has_run(server, ledger, tmp_path):
    assert said(server, "locks", "print(single.delay('a').id == single.delay('a').id)") == "True"
    assert backlog(server) == 1
    with worker(server, tmp_path, pool="solo", app=app_of("locks"), own=own_url(server)):
        ledger.wait_for("run", 1)
        with server.client(OWN_DB) as locks:
            wait_until(lambda: not locks.keys())
        said(server, "locks", "single.delay('a')")
        ledger.wait_for("run", 2)


@pytest.mark.parametrize(
    ("task", "error"),
    [("once", "Unsupported protocol ferryman"), ("single", "Redis URL must specify one of the following schemes")],
)
def test_neither_takes_the_brokers_url_and_says_so_at_the_first_publish(server, task, error):
    done = python(server, "locks", f"{task}.delay('a')", unset=1)
    assert done.returncode == 1
    assert error in done.stderr
    assert backlog(server) == 0


@pytest.mark.parametrize("task", ["once", "single"])
def test_a_task_that_is_cancelled_while_it_waits_leaves_its_lock_which_needs_an_expiry(server, task):
    task_id = said(server, "locks", f"print({task}.delay('a').id)")
    assert ferryman("cancel", server.url(), task_id).status == 0
    with server.client(OWN_DB) as locks:
        (key,) = locks.keys()
        assert (locks.pttl(key) > 0) == (task == "once"), "celery-once has an expiry unless told otherwise"


def test_the_brokers_own_key_is_free_again_when_the_task_is_cancelled(server):
    publish = "print(app.send_task('any', headers={'x-unique-key': 'k'}).id)"
    first = said(server, "locks", publish)
    said(server, "locks", publish)
    assert backlog(server) == 1
    assert ferryman("cancel", server.url(), first).status == 0
    said(server, "locks", publish)
    assert backlog(server) == 1
