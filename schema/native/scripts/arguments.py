"""Queue arguments: which of them the scripts honour, and how they stand in a queue's ``meta``.

They are checked here, at the edge, and stored as settings that every script reads, because a publishing channel may never declare
the queue it publishes to. Pure. Called by ``queue_scripts.py``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from ...connection.call import Argument
from ...errors import QueueArgumentsError


@frozen
class Setting:
    """A queue argument that scripts honour: its field in meta, and what it may be: a number, or text, or one of some choices."""

    field: str
    least: int = 0
    choices: tuple[str, ...] = ()
    is_name: bool = False
    """Whether it is any text; meta holds it as JSON, so that the empty name of the default exchange is something."""

    def value(self, queue: str, name: str, value: object) -> Argument:
        """The value as meta stores it, "" for None. Raises QueueArgumentsError for anything that can't be honoured."""
        if value is None:
            return ""
        if self.is_name:
            if isinstance(value, str):
                return json.dumps(value)
            raise QueueArgumentsError(f"queue {queue!r}: {name} is {value!r}, not a text")
        if self.choices:
            if value in self.choices:
                return str(value)
            raise QueueArgumentsError(f"queue {queue!r}: {name} is {value!r}, not one of {', '.join(self.choices)}")
        if not isinstance(value, int) or isinstance(value, bool) or not self.least <= value < 2**53:
            raise QueueArgumentsError(f"queue {queue!r}: {name} is {value!r}, not a whole number of at least {self.least}")
        return value


#: The arguments of ``declare`` that the scripts honour. Durations are ms.
SETTINGS: Mapping[str, Setting] = {
    "x-expires": Setting("expires", least=1),  # a queue unused for so long goes, with all its keys
    "x-message-ttl": Setting("ttl"),  # a job that waits longer is expired
    "x-max-length": Setting("max_length"),
    "x-max-length-bytes": Setting("max_bytes"),  # of the bodies that wait
    "x-overflow": Setting("overflow", choices=("drop-head", "reject-publish")),
    "x-max-priority": Setting("max_priority"),  # higher priorities count as this one
    "x-delivery-limit": Setting("delivery_limit", least=1),  # instead of the consumer's
    "x-retention": Setting("retention", least=1),  # acked jobs are kept in done for so long
    "x-dead-letter-exchange": Setting("dead_letter_exchange", is_name=True),  # where dead jobs go
    "x-dead-letter-routing-key": Setting("dead_letter_routing_key", is_name=True),  # instead of the key each was published with
}


def stored(queue: str, arguments: Mapping[str, Any]) -> list[Argument]:
    """All arguments as one JSON text ("" for none at all), then field and value of every setting, "" where it is not given.

    Raises QueueArgumentsError for an argument that can't be honoured or stored.
    """
    if "x-dead-letter-routing-key" in arguments and "x-dead-letter-exchange" not in arguments:
        raise QueueArgumentsError(f"queue {queue!r}: x-dead-letter-routing-key without x-dead-letter-exchange leads nowhere")
    try:
        text = json.dumps(arguments, sort_keys=True, separators=(",", ":")) if arguments else ""
    except (TypeError, ValueError) as error:
        raise QueueArgumentsError(f"queue {queue!r}: its arguments are no plain JSON data: {error}") from error
    values: list[Argument] = [text]
    for name, setting in SETTINGS.items():
        values += (setting.field, setting.value(queue, name, arguments.get(name)))
    return values
