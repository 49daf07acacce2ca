"""A process of qless-py or reqless that is measured. Started by ``sides.py``, with the package on its path.

python -m benchmarks.live.qless_process <package> <port> work <queue>          runs jobs until it is killed
python -m benchmarks.live.qless_process <package> <port> publish <queue> <n>   publishes n jobs, tells the seconds
python -m benchmarks.live.qless_process <package> <port> send <queue>          publishes a job for each line it reads
"""

from __future__ import annotations

import json
import pkgutil
import sys
import tempfile
import time
from importlib import import_module
from typing import Any

import redis

CLASSES = "benchmarks.live.qless_process"
POLL_SECONDS = 0.5
"""Between looks of an idle worker: the shortest that is common. The default of both is a minute."""
LEDGER: list[redis.Redis] = []


class Empty:
    """A job that does nothing."""

    @staticmethod
    def process(job: Any) -> None:
        """Ends it."""
        job.complete()


class Stamp:
    """A job that tells when it began, s since it was sent."""

    @staticmethod
    def process(job: Any) -> None:
        """Tells, and ends it."""
        data = json.loads(job.data) if isinstance(job.data, str) else job.data
        LEDGER[0].rpush("ledger", time.time() - data["at"])
        job.complete()


def client_of(package: str, port: int) -> Any:
    """The package's own client. qless-py's script of 2013 is mended in one word, without which servers since 6.2.7 refuse it."""
    client = import_module(package).Client(f"redis://127.0.0.1:{port}")
    if package == "qless":
        text = (pkgutil.get_data("qless", "qless-core/qless.lua") or b"").decode()
        text = text.replace("function table.extend(", "local function table_extend(").replace("table.extend(", "table_extend(")
        client._lua = client.redis.register_script(text)
    return client


def main(package: str, port: int, role: str, queue: str, number: int = 0) -> None:
    """Does what its role says."""
    client = client_of(package, port)
    jobs, dumped = client.queues[queue], json.dumps if package == "reqless" else dict
    if role == "work":
        # Jobs name classes of the module, not of the program.
        import_module(CLASSES).LEDGER.append(redis.Redis(port=port, db=1))
        worker = import_module(f"{package}.workers.serial").SerialWorker
        print("ready", flush=True)
        with tempfile.TemporaryDirectory() as sandbox:
            worker([queue], client, interval=POLL_SECONDS, sandbox=f"{sandbox}/jobs").run()
    elif role == "publish":
        start = time.time()
        for n in range(number):
            jobs.put(f"{CLASSES}.Empty", dumped({"n": n}))
        print(time.time() - start, flush=True)
    else:
        print("ready", flush=True)
        for _ in sys.stdin:
            jobs.put(f"{CLASSES}.Stamp", dumped({"at": time.time()}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], *map(int, sys.argv[5:]))
