"""Audits with Spark of keyspaces that are all askew: a job with 100,000 log lines, an index of all jobs, a tenth of them damaged.

What is found is exact, and no Python worker takes more memory for many jobs than for few.
"""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import redis
from attrs import frozen

from ..support.command import PROGRAM, ferryman
from ..support.servers import Server

LINES = 100_000
DAMAGED = 10
"""One job in so many."""
MOST_MB = 400
"""Of one Python worker, whatever the number of jobs. One that has done nothing has about 150."""


@frozen
class Audit:
    """What an audit in a process of its own has left behind."""

    findings: Counter[tuple[str, str]]
    """By rule and severity."""
    jobs: int
    unconfirmed: int
    peak_mb: float
    """Of the Python worker that took the most."""


MANY = pytest.param(400_000, id="many", marks=[pytest.mark.slow, pytest.mark.timeout(1800)])


@pytest.mark.parametrize("jobs", [pytest.param(10_000, id="few"), MANY])
def test_memory_is_the_same_however_many_jobs(server: Server, client: redis.Redis, tmp_path: Path, jobs: int) -> None:
    url = server.url(family="kue")
    assert ferryman("generate", url, "--jobs", str(jobs), "--seed", "1", "--format", "json").status == 0
    # A sound job, but for its many lines.
    client.delete("q:job:1:log")
    pipeline = client.pipeline(transaction=False)
    for start in range(0, LINES, 1000):
        pipeline.rpush("q:job:1:log", *(f"line {number} of what a worker had to say" for number in range(start, start + 1000)))
    pipeline.execute()
    broken = range(1, jobs + 1, DAMAGED)
    for start in range(0, len(broken), 1000):
        client.zrem("q:jobs", *(f"{len(str(number)):02d}|{number}" for number in broken[start : start + 1000]))
    assert client.zcard("q:jobs") == jobs - len(broken)
    audit = audited(url, tmp_path)
    assert audit.jobs == jobs
    assert audit.findings["KUE-4", "error"] == len(broken)
    assert not audit.unconfirmed
    assert audit.peak_mb < MOST_MB


def audited(url: str, folder: Path) -> Audit:
    """Audits with Spark on two cores, and watches its Python workers."""
    report = folder / "it.jsonl"
    command = [*PROGRAM, "audit", url, "--engine", "spark", "--master", "local[2]", "--report", str(report)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        peaks: dict[int, float] = {}
        while True:
            try:
                process.wait(0.1)
                break
            except subprocess.TimeoutExpired:
                for worker in _workers(process.pid):
                    peaks[worker] = max(peaks.get(worker, 0.0), _peak_mb(worker))
        assert process.stderr is not None
        assert process.returncode == 1, process.stderr.read().decode()
    findings: Counter[tuple[str, str]] = Counter()
    with report.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if "rule" in row:
                findings[row["rule"], row["severity"]] += 1
    assert peaks, "no worker was seen at work"
    return Audit(findings, row["jobs"], row["unconfirmed"], max(peaks.values()))


def _workers(parent: int) -> list[int]:
    """The Python workers of Spark among the descendants of a process."""
    found, waiting = [], [parent]
    while waiting:
        for path in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):
            try:
                children = list(map(int, path.read_text().split()))
            except OSError:
                continue
            waiting += children
            found += [child for child in children if b"ferryman.spark.daemon" in _read(child, "cmdline").split(b"\0")]
    return found


def _peak_mb(process: int) -> float:
    """The most memory that a process has had so far; 0 when it has ended."""
    lines = _read(process, "status").decode().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


def _read(process: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{process}/{name}").read_bytes()
    except OSError:
        return b""
