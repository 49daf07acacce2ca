"""SlotMap: which node of a Redis Cluster owns which slot, as some node has told it last.

It sends nothing itself: whoever asks brings the way to a node. Called by migrations' ``Cluster`` (and so by Spark) and the
transport's ``ClusterLink``. Format: https://redis.io/docs/latest/commands/cluster-slots/.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import redis
from redis.exceptions import AskError, ClusterDownError, MovedError, TryAgainError

from ..errors import ServerError, UsageError
from ..text import to_text
from .permission import Forbidden

Node = tuple[str, int]
"""Host and port."""

REDIRECTIONS = (MovedError, AskError, TryAgainError, ClusterDownError)
"""Replies of a node that does not have the key, or not all of it yet."""
UNREACHABLE = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError)
"""After these another node is asked."""


class SlotMap:
    """Made with the nodes that an address names. Not for several threads."""

    def __init__(self, seeds: Sequence[Node]) -> None:
        self._seeds = seeds
        self.owners: Mapping[int, Node] = {}
        """Slot -> node; empty before the first ``refresh``."""
        self.version = 0
        """Grows with each change."""

    def refresh(self, ask: Callable[[Node], Sequence[Any]], known: Iterable[Node] = ()) -> Mapping[int, Node]:
        """Slot -> owner, as the first node that answers says it: of those that are known to be there, then of the seeds.

        ``ask`` sends a node CLUSTER SLOTS and returns the reply. Raises UsageError when it is no node of a cluster, and when none
        can be reached, the error of the last.
        """
        failure: Exception = ServerError("the cluster has no nodes")
        for node in dict.fromkeys((*known, *self._seeds)):
            try:
                ranges = ask(node)
            except UNREACHABLE as error:
                failure = error
                continue
            except Forbidden:
                raise
            except redis.exceptions.ResponseError as error:
                raise UsageError(
                    f"{node[0]}:{node[1]} is no node of a cluster ({error}); leave '+cluster' out of the URL"
                ) from None
            owners: dict[int, Node] = {}
            for first, last, (host, port, *_), *_ in ranges:
                # A node that does not know its own name is the one that was asked.
                owners.update(dict.fromkeys(range(first, last + 1), (to_text(host) or node[0], int(port))))
            if owners != self.owners:
                self.owners = owners
                self.version += 1
            return owners
        raise failure

    def masters(self) -> list[Node]:
        """Every node that owns slots."""
        return sorted(set(self.owners.values()))
