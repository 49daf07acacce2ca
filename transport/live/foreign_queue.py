"""ForeignQueue: the name of a queue whose jobs stand in another system's keyspace.

Beside it ferryman's own queue of the same name may exist: it has the bindings, and what is published without being a task. So the
two names must be told apart wherever something is remembered by queue (what is held, until when, what to poll), and
``Session.family_of`` must know which transitions a name asks for. Called by everything that begins with a queue's plain name.
"""

from __future__ import annotations


class ForeignQueue(str):
    """Reads and prints as the plain name, but equals no plain one."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ForeignQueue) and str.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return ~str.__hash__(self)
