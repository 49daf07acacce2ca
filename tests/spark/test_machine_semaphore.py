"""Semaphores of a machine: how many processes hold one at a time, and that nobody waits for good."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.synchronize import Barrier, Semaphore
from pathlib import Path

import pytest
from ferryman.migrations.engine.machine_semaphore import MachineSemaphore

FORKED = multiprocessing.get_context("fork")


def take_turns(semaphore: MachineSemaphore, begin: Barrier, free: Semaphore, overfull: Semaphore) -> None:
    begin.wait(60)
    for _ in range(20):
        with semaphore.acquired():
            if not free.acquire(block=False):
                overfull.release()
                return
            time.sleep(0.001)
            free.release()


@pytest.mark.parametrize("slots", [1, 2])
def test_no_more_hold_it_than_there_are_slots(tmp_path: Path, slots: int) -> None:
    semaphore, begin = MachineSemaphore(str(tmp_path), "sending", slots, timeout=60), FORKED.Barrier(4)
    free, overfull = FORKED.Semaphore(slots), FORKED.Semaphore(0)
    processes = [FORKED.Process(target=take_turns, args=(semaphore, begin, free, overfull)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    assert not overfull.acquire(block=False)


def hold(semaphore: MachineSemaphore, arrived: Semaphore) -> None:
    with semaphore.acquired():
        arrived.release()
        time.sleep(60)


def test_who_is_killed_frees_its_slot_and_who_hangs_is_passed_by(tmp_path: Path) -> None:
    semaphore, arrived = MachineSemaphore(str(tmp_path), "sending", 1, timeout=0.3), FORKED.Semaphore(0)
    hanging = FORKED.Process(target=hold, args=(semaphore, arrived))
    hanging.start()
    assert hanging.pid is not None
    try:
        assert arrived.acquire(timeout=60)
        os.kill(hanging.pid, signal.SIGSTOP)
        started = time.monotonic()
        with semaphore.acquired():
            assert time.monotonic() - started >= semaphore.timeout
    finally:
        os.kill(hanging.pid, signal.SIGKILL)
        hanging.join(10)
    patient = MachineSemaphore(str(tmp_path), "sending", 1, timeout=60)
    started = time.monotonic()
    with patient.acquired():
        assert time.monotonic() - started < patient.timeout


def test_semaphores_of_other_names_are_others(tmp_path: Path) -> None:
    one, other = (MachineSemaphore(str(tmp_path), name, 1, timeout=60) for name in ("one", "other"))
    started = time.monotonic()
    with one.acquired(), other.acquired():
        assert time.monotonic() - started < one.timeout
