"""A task of an app that OpenTelemetry or Sentry watches; what they would send goes to the ledger."""

from __future__ import annotations

import os

from celery import Celery

from ...support.tasks import BROKER, record

app = Celery("tracing", broker=BROKER)
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)

if os.environ.get("FERRYMAN_TEST_WATCH") == "otel":
    from opentelemetry import trace
    from opentelemetry.instrumentation.celery import CeleryInstrumentor
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

    class ToLedger(SpanExporter):
        """An exporter."""

        def export(self, spans):  # type: ignore[no-untyped-def]
            for span in spans:
                parent = span.parent and f"{span.parent.span_id:x}"
                about = {"trace": f"{span.context.trace_id:x}", "id": f"{span.context.span_id:x}", "parent": parent}
                record("span", span.name, **about, kind=span.kind.name, ok=span.status.is_ok, attributes=dict(span.attributes))
            return SpanExportResult.SUCCESS

    trace.set_tracer_provider(TracerProvider())
    trace.get_tracer_provider().add_span_processor(SimpleSpanProcessor(ToLedger()))
    CeleryInstrumentor().instrument()

if os.environ.get("FERRYMAN_TEST_WATCH") == "sentry":
    import sentry_sdk
    from sentry_sdk.transport import Transport

    class Ledger(Transport):
        """A transport."""

        def capture_envelope(self, envelope):  # type: ignore[no-untyped-def]
            for item in envelope.items:
                if item.type in ("event", "transaction"):
                    event = item.payload.json
                    record(item.type, event.get("transaction"), contexts=event["contexts"], spans=event.get("spans"))

    sentry_sdk.init(dsn="http://key@127.0.0.1:1/1", transport=Ledger, traces_sample_rate=1.0)


@app.task
def fine(name: object) -> None:
    """Runs at once."""
    record("run", name)


@app.task(bind=True, max_retries=1)
def again(self) -> None:  # type: ignore[no-untyped-def]
    """Asks for a second time, once."""
    if not self.request.retries:
        raise self.retry(countdown=0)


@app.task
def wrong() -> None:
    """Fails."""
    raise ValueError("as it should")
