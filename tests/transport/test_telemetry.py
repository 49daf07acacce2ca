"""The option ``otel``: a span for each publish and each take, linked, and nothing at all without it."""

from __future__ import annotations

import sys

import ferryman.transport  # noqa: F401 - registers the URL schemes
import pytest
from ferryman.schema.errors import UsageError
from kombu import Connection, Producer

from ..support.servers import Server

pytest.importorskip("opentelemetry.sdk")

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


@pytest.fixture(scope="module")
def all_spans() -> InMemorySpanExporter:
    """Where all spans of this process go: it has one provider for as long as it lives."""
    if not isinstance(trace.get_tracer_provider(), TracerProvider):
        trace.set_tracer_provider(TracerProvider())
    provider, exporter = trace.get_tracer_provider(), InMemorySpanExporter()
    assert isinstance(provider, TracerProvider)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter


@pytest.fixture
def exporter(all_spans: InMemorySpanExporter) -> InMemorySpanExporter:
    """The spans of one test."""
    all_spans.clear()
    return all_spans


def spans(exporter: InMemorySpanExporter, kind: trace.SpanKind) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.kind is kind]


def url(server: Server) -> str:
    return f"ferryman://127.0.0.1:{server.port}/0"


@pytest.mark.parametrize("batched", [False, True])
def test_a_take_links_to_its_publish(server: Server, exporter: InMemorySpanExporter, batched: bool) -> None:
    with Connection(f"{url(server)}?otel=true") as connection, connection.SimpleQueue("mail") as queue:
        exporter.clear()
        if batched and hasattr(Producer, "batch"):
            with queue.producer.batch():
                queue.put({"n": 1}, headers={"id": "17", "task": "send"})
        else:
            queue.put({"n": 1}, headers={"id": "17", "task": "send"})
        message = queue.get(timeout=5)
        message.ack()
    (sent,), (taken,) = spans(exporter, trace.SpanKind.PRODUCER), spans(exporter, trace.SpanKind.CONSUMER)
    assert [link.context.span_id for link in taken.links] == [sent.context.span_id]
    assert sent.attributes is not None
    assert sent.attributes["messaging.message.id"] == "17"
    assert sent.attributes["messaging.system"] == "ferryman"
    assert taken.attributes is not None
    assert taken.attributes["messaging.destination.name"] == "mail"
    assert message.headers["traceparent"].split("-")[2] == f"{sent.context.span_id:016x}"


def test_the_trace_of_another_instrumentation_stays(server: Server, exporter: InMemorySpanExporter) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with Connection(f"{url(server)}?otel=true") as connection, connection.SimpleQueue("mail") as queue:
        queue.put(1, headers={"traceparent": parent})
        message = queue.get(timeout=5)
        message.ack()
    assert message.headers["traceparent"] == parent
    (taken,) = spans(exporter, trace.SpanKind.CONSUMER)
    assert [f"{link.context.span_id:016x}" for link in taken.links] == ["b7ad6b7169203331"]


def test_without_the_option_there_are_no_spans_and_no_header(server: Server, exporter: InMemorySpanExporter) -> None:
    with Connection(url(server)) as connection, connection.SimpleQueue("mail") as queue:
        queue.put(1)
        message = queue.get(timeout=5)
        message.ack()
    assert exporter.get_finished_spans() == ()
    assert "traceparent" not in message.headers


def test_without_the_option_the_package_is_not_needed(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with Connection(url(server)) as connection, connection.SimpleQueue("mail") as queue:
        queue.put(1)
        queue.get(timeout=5).ack()


def test_without_the_package_the_error_names_what_to_install(monkeypatch: pytest.MonkeyPatch, server: Server) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(UsageError, match=r"ferryman\[otel\]"):
        Connection(f"{url(server)}?otel=true").connect()
