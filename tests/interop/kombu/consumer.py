"""A consumer of ours in a process of its own, without Celery: takes, runs, renews and ends messages as KombuClient has it.

    python -m tests.interop.kombu.consumer <redis url> <ledger url> <queue> <visibility timeout, s> <lease, ms> <prefix>

Ends what it runs and gives the rest back when it is told to (SIGTERM).
"""

from __future__ import annotations

import base64
import json
import signal
import sys
import threading
import time
from datetime import datetime
from typing import Any

import redis
from ferryman.compat.kombu.client import KombuClient
from ferryman.compat.kombu.keys import Settings
from ferryman.schema.connection.call import run as send
from ferryman.schema.live import ForeignDelivery

from .effects import Ledger, Retried, run

NAMES = ("name", "seconds", "failures")
"""Of the task's arguments."""


def main(url: str, ledger_url: str, queue: str, visibility: float, lease_ms: int, prefix: str) -> None:
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    ledger = Ledger(redis.Redis.from_url(ledger_url), "ours")
    settings = Settings(visibility_timeout=visibility)
    with redis.Redis.from_url(url) as server:
        client = KombuClient(server, prefix, settings=settings, lease_ms=lease_ms, delivery_limit=3)
        threading.Thread(target=renew, args=(url, client, queue, is_over), daemon=True).start()
        print(" ready.", flush=True)
        with client:
            while not is_over.is_set():
                client.run_timers()
                for job in client.take(queue, tasks={"fleet.work"}):
                    serve(client, ledger, job)
                is_over.wait(0.01)


def renew(url: str, client: KombuClient, queue: str, is_over: threading.Event) -> None:
    """Renews the consumer's lease while the other thread runs a job."""
    with redis.Redis.from_url(url) as server:
        while not is_over.wait(client.lease_ms / 4000):
            send(server, client.live.renew(queue, client.consumer, client.lease_ms))


def serve(client: KombuClient, ledger: Ledger, job: ForeignDelivery) -> None:
    """One attempt: waits until it is due, runs it, and ends it."""
    message: dict[str, Any] = json.loads(job.payload)
    args, kwargs, _ = json.loads(base64.b64decode(message["body"]))
    eta = message["headers"]["eta"]
    if eta:
        time.sleep(max(0.0, datetime.fromisoformat(eta).timestamp() - time.time()))
    given = {"seconds": 0.0, "failures": 0, "holds": False, **dict(zip(NAMES, args, strict=False)), **kwargs}
    try:
        run(ledger, given["name"], given["seconds"], given["failures"], job.attempts, holds=given["holds"])
    except Retried as error:
        client.retry(job, 50, error)
    else:
        client.complete(job)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5]), sys.argv[6])
