"""Telemetry: OpenTelemetry's spans for publishing and taking, with the option ``otel``. Without it nothing is imported or done.

A publish is a span of the kind PRODUCER, and its context travels in the message's headers (W3C ``traceparent``) unless another
instrumentation has put one there: Celery's own does, and workers continue its trace. A take is a span of the kind CONSUMER that
links to what it has taken, because one take may bring messages of many traces. Names are those of OpenTelemetry's conventions for
messaging. Called by ``channel.py`` and ``publish/``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from ..schema.errors import UsageError

SYSTEM = "ferryman"
PARENT = "traceparent"
CONTROL = ("pidbox", "celeryev")
"""In the names of exchanges and queues of remote control and events, which are no work of anybody's."""


class Telemetry:
    """The spans of one connection. Raises UsageError where OpenTelemetry's API is not installed."""

    def __init__(self) -> None:
        try:
            from opentelemetry import propagate, trace
        except ModuleNotFoundError:
            raise UsageError("the option otel needs OpenTelemetry: pip install 'ferryman[otel]'") from None
        self._propagate = propagate
        self._trace = trace
        self._tracer = trace.get_tracer("ferryman.transport")

    @contextlib.contextmanager
    def publishing(self, message: Mapping[str, Any], exchange: str, routing_key: str) -> Iterator[Mapping[str, Any]]:
        """A span around a publish; gives the message with the span's context in its headers."""
        headers = message.get("headers") or {}
        if _is_control(exchange, routing_key):
            yield message
            return
        destination = exchange or routing_key
        attributes = _attributes("send", destination, headers)
        with self._tracer.start_as_current_span(f"send {destination}", kind=self._trace.SpanKind.PRODUCER, attributes=attributes):
            if PARENT not in headers:
                context: dict[str, str] = {}
                self._propagate.inject(context)
                message = {**message, "headers": {**headers, **context}}
            yield message

    def taken(self, queue: str, headers: Mapping[str, Any]) -> None:
        """A span for a message that has been taken, linked to its publish."""
        if _is_control("", queue):
            return
        texts = {name: value for name, value in headers.items() if isinstance(value, str)}
        producer = self._trace.get_current_span(self._propagate.extract(texts)).get_span_context()
        links = [self._trace.Link(producer)] if producer.is_valid else []
        kind, attributes = self._trace.SpanKind.CONSUMER, _attributes("receive", queue, headers)
        self._tracer.start_span(f"receive {queue}", kind=kind, attributes=attributes, links=links).end()


def _attributes(operation: str, destination: str, headers: Mapping[str, Any]) -> dict[str, str]:
    attributes = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": destination,
    }
    for name, header in (("messaging.message.id", "id"), ("celery.task_name", "task")):
        if isinstance(headers.get(header), str):
            attributes[name] = headers[header]
    return attributes


def _is_control(exchange: str, queue: str) -> bool:
    return any(word in name for word in CONTROL for name in (exchange, queue))
