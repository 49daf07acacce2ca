"""Turnstiles: how many processes are inside at a time, and that nobody waits for good."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.synchronize import Barrier, Semaphore
from pathlib import Path

import pytest
from ferryman.spark.machine_semaphore import Turnstile

FORKED = multiprocessing.get_context("fork")


def go_through(turnstile: Turnstile, begin: Barrier, free: Semaphore, overfull: Semaphore) -> None:
    begin.wait(10)
    for _ in range(20):
        with turnstile.inside():
            if not free.acquire(block=False):
                overfull.release()
                return
            time.sleep(0.001)
            free.release()


@pytest.mark.parametrize("room", [1, 2])
def test_no_more_are_inside_than_there_is_room_for(tmp_path: Path, room: int) -> None:
    turnstile, begin = Turnstile(str(tmp_path), "sending", room, patience=60), FORKED.Barrier(4)
    free, overfull = FORKED.Semaphore(room), FORKED.Semaphore(0)
    processes = [FORKED.Process(target=go_through, args=(turnstile, begin, free, overfull)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert not overfull.acquire(block=False)


def stay_inside(turnstile: Turnstile, arrived: Semaphore) -> None:
    with turnstile.inside():
        arrived.release()
        time.sleep(60)


def test_who_is_killed_inside_makes_room_and_who_hangs_is_passed_by(tmp_path: Path) -> None:
    turnstile, arrived = Turnstile(str(tmp_path), "sending", 1, patience=0.3), FORKED.Semaphore(0)
    hanging = FORKED.Process(target=stay_inside, args=(turnstile, arrived))
    hanging.start()
    assert hanging.pid is not None
    try:
        assert arrived.acquire(timeout=10)
        os.kill(hanging.pid, signal.SIGSTOP)
        started = time.monotonic()
        with turnstile.inside():
            assert time.monotonic() - started >= turnstile.patience
    finally:
        os.kill(hanging.pid, signal.SIGKILL)
        hanging.join(10)
    patient = Turnstile(str(tmp_path), "sending", 1, patience=60)
    started = time.monotonic()
    with patient.inside():
        assert time.monotonic() - started < patient.patience


def test_turnstiles_of_other_names_are_others(tmp_path: Path) -> None:
    one, other = (Turnstile(str(tmp_path), name, 1, patience=60) for name in ("one", "other"))
    started = time.monotonic()
    with one.inside(), other.inside():
        assert time.monotonic() - started < one.patience
