"""What a forked child makes anew before it runs on: locks that other threads of its parent may hold, and connections.

``fork`` copies only the thread that calls it. A lock held by another thread stays locked in the child for ever, and a socket is
shared with the parent. Called by whatever has such a lock or connection.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Inherited(Protocol):
    """An object that a child gets from its parent."""

    def after_fork(self) -> None:
        """Replaces locks, and drops connections without a word to the server. Called in the child, in its only thread."""


_inherited: weakref.WeakSet[Inherited] = weakref.WeakSet()


def renew_in_children(owner: Inherited) -> None:
    """Calls ``owner.after_fork()`` in every child that is forked while the object lives."""
    _inherited.add(owner)


def _renew_all() -> None:
    for owner in list(_inherited):
        owner.after_fork()


os.register_at_fork(after_in_child=_renew_all)
