"""Side keys: what ferryman keeps of a foreign keyspace that it serves, beside the keys of that system.

| key | type | holds | ends |
|---|---|---|---|
| ``<root>consumers:<queue>`` | zset | consumer -> when its lease ends, ms | with the consumers, or when they lapse |
| ``<root>held:<queue>`` | hash | job id -> consumer that holds it | with the run |
| ``<root>lapses:<queue>`` | hash | job id -> how often its consumer has lapsed | with the job |
| ``<root>extra:<queue>`` | hash | job id -> what Celery knows of it, where the record has no place for that | with the job |
| ``<root>started:<queue>`` | hash | job id -> when its run began and how long it may take, ms (kickq) | with the run |
| ``<root>queues`` | set | the queues that have consumers | with the consumers |
| ``<root>publisher:<producer>`` | string | a producer's last publication and the id of its job | after ten minutes |

``<root>`` is ``<side_prefix>:live:<family>:{<tag>}:``; the tag is the foreign prefix's own hash tag if it has one, so that one
script reaches both. They never stand inside the foreign prefix. The pieces in ``lua/_side.lua`` write them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeVar

from ..schema import lua
from ..schema.connection.call import Argument, Call, Script
from ..schema.native.keys import DEFAULT_PREFIX, escape
from ..schema.native.scripts.publication import optional
from ..schema.native.scripts.script_replies import result
from ..schema.text import to_bytes

T = TypeVar("T")

_TAG = re.compile(r"\{([^}]+)\}")


def root(family: str, prefix: str, side_prefix: str = DEFAULT_PREFIX) -> bytes:
    """What all side keys of a keyspace begin with."""
    tag = _TAG.search(prefix)
    return to_bytes(f"{side_prefix}:live:{family}:{{{tag[1] if tag else escape(prefix)}}}:")


@cache
def transition(package: str, name: str) -> Script:
    """The script ``lua/<name>.lua`` of a family's package, with what it needs of the pieces.

    These are ``schema/native/scripts/lua/_common.lua``, those of ``compat/lua``, and the family's own ``lua/_common.lua``.
    """
    shared = (lua.read(_here(), "_side"), lua.read(_here(), "_text"))
    pieces = (lua.read("ferryman.schema.native.scripts", "_common"), *shared, lua.read(package, "_common"))
    return Script(f"{package.rpartition('.')[2]}.{name}", lua.assemble(lua.read(package, name), pieces))


def call(
    package: str,
    name: str,
    keys: Sequence[bytes],
    now: int | None,
    args: Sequence[Argument],
    parse: Callable[[Any], T],
    what: str,
) -> Call[T]:
    """A call of a transition: ARGV[1] is ``now``, then ``args``. Errors name ``what`` it is about: ``kue queue 'mail'``."""
    return Call(transition(package, name), tuple(keys), (optional(now), *args), lambda reply: parse(result(reply, what)))


def _here() -> str:
    assert __package__
    return __package__
