"""What one thread of the transport hands over to another, in every order of their steps."""

from __future__ import annotations

import select
import sys

from ferryman.transport.consume import waker as waker_module
from ferryman.transport.consume.waker import Waker

from ..support.interleaving import in_every_order


def is_readable(waker):
    return bool(select.select([waker], [], [], 0)[0])


def test_each_wake_ends_a_wait_whatever_the_other_threads_do_meanwhile():
    def case(interleaving):
        waker, changes, seen = Waker(), [], []

        def change():
            changes.append("change")
            waker.wake()

        def loop():
            for _ in range(2):
                if is_readable(waker):
                    waker.reset()
                    seen[:] = changes

        interleaving.run([change, loop, change])

        def check():
            assert seen == changes or is_readable(waker), "a change was not announced"
            if is_readable(waker):  # an event loop resets it only then
                waker.reset()
            waker.wake()
            assert is_readable(waker), "it wakes no more"
            waker.close()

        return check

    assert in_every_order(case, [waker_module, sys.modules[__name__]]) > 100


def test_a_wake_while_the_waker_is_closed_raises_nothing():
    def case(interleaving):
        waker = Waker()
        interleaving.run([waker.wake, waker.close])
        return lambda: None

    assert in_every_order(case, [waker_module]) > 3
