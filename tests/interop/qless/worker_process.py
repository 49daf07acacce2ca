"""A process of qless-py or reqless: its own serial worker on the queues mail and video. The package's folder is on its path.

Arguments: core, port, name of the worker. The classes of jobs are here: what they do is recorded in database 1.
"""

from __future__ import annotations

import pkgutil
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import redis

QUEUES = ("mail", "video")
INTERVAL = 0.05


class Deed:
    """Does what its data says."""

    @staticmethod
    def process(job: Any) -> None:
        data = job.data if isinstance(job.data, dict) else import_module("json").loads(job.data)
        LEDGER.rpush("begun", data["n"])
        if data["do"] == "sleep":
            time.sleep(data["seconds"])
        if data["do"] == "raise":
            raise LookupError("no customer")
        if data["do"] == "retry" and job.retries_left == job.original_retries:
            job.retry(0, "later", "not yet")
            return
        LEDGER.rpush("done", data["n"])
        if data["next"] not in ("", job.queue_name):
            job.complete(data["next"])
        else:
            job.complete()


def main(core: str, port: int, name: str) -> None:
    """Works until it is killed."""
    package = import_module("qless" if core == "unified" else "reqless")
    client = package.Client(f"redis://127.0.0.1:{port}/0", hostname=name)
    if core == "unified":
        text = (pkgutil.get_data("qless", "qless-core/qless.lua") or b"").decode()
        # As in cores.py, which this process can't import.
        text = text.replace("function table.extend(", "local function table_extend(").replace("table.extend(", "table_extend(")
        client._lua = client.redis.register_script(text)
    worker = import_module(f"{package.__name__}.workers.serial").SerialWorker
    with tempfile.TemporaryDirectory() as folder:
        LEDGER.rpush("workers", name)
        worker(QUEUES, client, interval=INTERVAL, sandbox=str(Path(folder) / "sandbox")).run()


if __name__ == "__main__":
    sys.modules["worker_process"] = sys.modules["__main__"]
    LEDGER = redis.Redis(port=int(sys.argv[2]), db=1)
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
