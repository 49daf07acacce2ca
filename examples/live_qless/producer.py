"""Puts a job into a queue of reqless, and waits until it is complete: python producer.py

Needs: pip install reqless
"""

from __future__ import annotations

import json
import os
import sys
import time

import reqless

client = reqless.Client(os.environ.get("REDIS_URL", "redis://localhost:6379/0"))
jid = client.queues["mail"].put("email", json.dumps({"to": "ann@example.com"}), tags=["welcome"], retries=3)
deadline = time.monotonic() + 30
while time.monotonic() < deadline:
    job = client.jobs[jid]
    if job is not None and job.state in ("complete", "failed"):
        print(f"job {job.state} by {job.worker_name or 'nobody any more'}")
        sys.exit(job.state == "failed")
    time.sleep(0.1)
sys.exit("the job is still not done")
