"""Routing: to which queues the bindings of an exchange lead a message, by AMQP's rules. Pure.

Called by the transport for what is published, and by the reader, which has to know whether a message went to several queues.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from ..errors import MalformedValue
from ..text import load_json
from .scripts.exchange import Binding

DIRECT = ""
FANOUT = "fanout"
TOPIC = "topic"
HEADERS = "headers:"
"""What stands in a binding's pattern: nothing for direct; this word for fanout and topic; this word and arguments as JSON for
headers. Never a regular expression: anybody may write into Redis."""

WORDS = {"*": r"\.[^.]*", "#": r"(?:\.[^.]*)*"}
"""A topic's wildcards, as regular expressions of words with a dot before each."""

NO_HEADERS: Mapping[str, Any] = {}


def pattern(exchange_type: str, arguments: Mapping[str, Any] | None = None) -> str:
    """The pattern that a binding stores, by the exchange's type."""
    match exchange_type:
        case "topic" | "fanout":
            return exchange_type
        case "headers":
            return HEADERS + json.dumps(arguments or {}, sort_keys=True, separators=(",", ":"))
        case _:
            return DIRECT


@lru_cache(maxsize=1024)
def _words(topic: str) -> re.Pattern[str]:
    return re.compile("".join(WORDS.get(word, r"\." + re.escape(word)) for word in topic.split(".")), re.DOTALL)


@lru_cache(maxsize=1024)
def _wanted(text: str) -> tuple[bool, Mapping[str, Any]]:
    """Whether all of the headers are wanted or any, and which. RabbitMQ leaves those out that begin with ``x-``."""
    try:
        arguments = load_json(text.encode("utf-8"))
    except (MalformedValue, UnicodeEncodeError):
        return False, NO_HEADERS
    given = arguments if isinstance(arguments, dict) else {}
    return given.get("x-match", "all") == "all", {name: value for name, value in given.items() if not name.startswith("x-")}


def matches(binding: Binding, routing_key: str, headers: Mapping[str, Any] = NO_HEADERS) -> bool:
    """Whether a message with this routing key and these headers goes to the binding's queue."""
    if binding.pattern == DIRECT:
        return binding.routing_key == routing_key
    if binding.pattern == FANOUT:
        return True
    if binding.pattern == TOPIC:
        return _words(binding.routing_key).fullmatch("." + routing_key) is not None
    if binding.pattern.startswith(HEADERS):
        is_all, wanted = _wanted(binding.pattern.removeprefix(HEADERS))
        found = (name in headers and value in (None, headers[name]) for name, value in wanted.items())
        return all(found) if is_all else any(found)
    return False


def queues_of(bindings: Iterable[Binding], routing_key: str, headers: Mapping[str, Any] = NO_HEADERS) -> set[str]:
    """The queues to which these bindings lead."""
    return {binding.queue for binding in bindings if matches(binding, routing_key, headers)}
