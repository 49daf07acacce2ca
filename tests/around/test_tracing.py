"""OpenTelemetry and Sentry follow a task from its producer to its worker, also if it is delayed."""

from __future__ import annotations

import pytest

from ..support.around import app_of, own_url, said
from ..support.workers import worker

APPS = "tests.around.apps.tracing"


def test_opentelemetry_joins_producer_and_worker_in_one_trace(server, ledger, tmp_path):
    pytest.importorskip("opentelemetry.instrumentation.celery")
    pytest.importorskip("opentelemetry.sdk")
    with worker(server, tmp_path, pool="solo", app=app_of("tracing"), watch="otel", own=own_url(server)):
        said(server, "tracing", "fine.delay('now')\nfine.apply_async(('later',), countdown=1)\nwrong.delay()", watch="otel")
        lines = ledger.wait_for("span", 6)
    spans = [line for line in lines if line["event"] == "span"]
    sent = {span["id"]: span for span in spans if span["kind"] == "PRODUCER"}
    received = [span for span in spans if span["kind"] == "CONSUMER"]
    assert len(sent) == len(received) == 3
    for span in received:
        assert span["trace"] == sent[span["parent"]]["trace"]
        assert span["attributes"]["messaging.destination"] == "celery"
    assert {span["name"]: span["ok"] for span in received} == {f"run/{APPS}.fine": True, f"run/{APPS}.wrong": False}


def test_sentry_joins_producer_and_worker_and_names_the_broker_redis(server, ledger, tmp_path):
    pytest.importorskip("sentry_sdk")
    program = "with sentry_sdk.start_transaction(name='web'):\n    fine.apply_async(('later',), countdown=1)\n    wrong.delay()"
    with worker(server, tmp_path, pool="solo", app=app_of("tracing"), watch="sentry", own=own_url(server)):
        said(server, "tracing", f"import sentry_sdk\n{program}", watch="sentry")
        told = {("event", f"{APPS}.wrong"), *(("transaction", name) for name in ("web", f"{APPS}.fine", f"{APPS}.wrong"))}
        lines = ledger.wait(lambda lines: told <= _said(lines))
    trace_ids = {line["name"]: line["contexts"]["trace"]["trace_id"] for line in lines if line["event"] == "transaction"}
    assert len(set(trace_ids.values())) == 1
    assert trace_ids.keys() >= {"web", f"{APPS}.fine", f"{APPS}.wrong"}
    (fine,) = [line for line in lines if line["event"] == "transaction" and line["name"] == f"{APPS}.fine"]
    (process,) = [span["data"] for span in fine["spans"] if span["op"] == "queue.process"]
    assert (process["messaging.system"], process["messaging.destination.name"]) == ("redis", "celery")
    assert process["messaging.message.receive.latency"] >= 1000, "the delay counts: Sentry knows when the task was sent"


def _said(lines: list[dict[str, object]]) -> set[tuple[object, object]]:
    return {(line["event"], line["name"]) for line in lines}
