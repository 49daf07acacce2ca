"""Key references: the keys that speak of one job, so that all of them can be read again at one moment; and what to count again.

A family names the keys of a job (``KeyFamily.related_keys``), and the numbers on which a finding about the keyspace rests
(``KeyFamily.count_checks``); ``migrations/recheck.py`` reads them. Plain values.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from attrs import frozen

from .fact import Subject
from .text import to_bytes
from .totals import Totals


class KeyRef(NamedTuple):
    """A key to read whole, or some items of a key that speaks of many jobs."""

    key: bytes
    redis_type: str
    items: tuple[bytes, ...] = ()
    """Members of a zset or set, fields of a hash, or entries of a list; none for the whole key."""


def known_keys(subject: Subject) -> Iterator[KeyRef]:
    """Where the facts about a job came from; a key may come twice.

    A fact's member stands in its key, unless it names another job that has this one as member: then the job's own id does.
    """
    own = to_bytes(subject.job_id)
    for fact in subject.facts:
        if fact.member is None or fact.redis_type not in ("zset", "set", "list"):
            yield KeyRef(fact.key, fact.redis_type)
        else:
            yield KeyRef(fact.key, fact.redis_type, (own,) if fact.member == own else (fact.member, own))


@frozen
class CountCheck:
    """A number in the totals of a keyspace, and the command that tells it now."""

    measure: str
    label: str
    command: tuple[bytes | str | int | float, ...]
    is_maximum: bool = False
    """Among the maxima, instead of the sums."""

    def put(self, totals: Totals, reply: int | bytes) -> None:
        """Takes the reply over into the totals; one that is no number counts as 0."""
        number = reply if isinstance(reply, int) else int(reply) if reply.isdigit() else 0
        if self.is_maximum:
            totals.maxima[self.measure, self.label] = number
        else:
            totals.sums[self.measure, self.label] = number
