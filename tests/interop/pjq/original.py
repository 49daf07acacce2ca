"""A worker of pjq and the program that hears it, in a process of their own; no registry carries the real one.

    python -m tests.interop.pjq.original <redis url> <ledger url> <queue> <tick, s>

The messages of the other workers' programs come over lists of the ledger's database, one for each worker, as over MQTT. Takes one
job at a time. Goes on until it is killed, or told to end (SIGTERM), which it does between two jobs.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from uuid import uuid4

import redis

from ...support.pjq_program import Program, accepted, done, run


def main(url: str, ledger_url: str, queue: str, tick: float) -> None:
    is_over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_over.set())
    worker, next_tick = str(uuid4()), 0.0
    with redis.Redis.from_url(url) as server, redis.Redis.from_url(ledger_url) as bus:
        program = Program(server, 0)

        def say_that_it_is_idle() -> None:
            program.now_ms = round(time.time() * 1000)
            run(program.worker_idle(worker, queue))
            for whose, job in program.assigned:
                bus.lpush(f"bus:{whose}", json.dumps(job))
            program.assigned.clear()

        print(" ready.", flush=True)
        while not is_over.is_set():
            if time.monotonic() >= next_tick:
                say_that_it_is_idle()
                next_tick = time.monotonic() + tick
            message = bus.brpop([f"bus:{worker}"], timeout=0.05)
            if message:
                serve(program, bus, worker, json.loads(message[1]))
                next_tick = 0.0
        server.srem(f"workers_idle:{queue}", worker)
        for message in iter(lambda: bus.rpop(f"bus:{worker}"), None):
            serve(program, bus, worker, json.loads(message))


def serve(program: Program, ledger: redis.Redis, worker: str, job: dict[str, object]) -> None:
    """Accepts a job, runs it, and finishes it. One that is an envelope is what Celery means by it."""

    def note(event: str) -> None:
        ledger.rpush("ledger", json.dumps({"event": event, "name": job["job"], "side": "original", "at": time.time()}))

    program.now_ms = round(time.time() * 1000)
    begun = accepted(job, program)
    run(program.job_accepted(worker, begun))
    note("start")
    time.sleep(float(str(job.get("seconds", 0))))
    while job.get("holds") and not ledger.exists(f"let go:{job['job']}"):
        time.sleep(0.02)
    note("end")
    program.now_ms = round(time.time() * 1000)
    run(program.job_finished(worker, done(begun, program, int(bool(job.get("fails"))), "ran", "")))


if __name__ == "__main__":
    main(*sys.argv[1:4], float(sys.argv[4]))
