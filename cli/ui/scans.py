"""Scans: what takes reading every job, done by a process of its own (``scan_process.py``), as looks in the background."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any

from ...migrations.queues import QueueStatus
from ...operations.numbers import Numbers, of_status
from ...schema.connection.address import Address
from ...schema.errors import FerrymanError, ServerError
from .background import Look

LONGEST_S = 900.0
"""After so long a scan is given up."""


class ScanFailed(FerrymanError):
    """The other process has found nothing; the text says why."""


def audit(address: Address, look: Look[Any]) -> Mapping[str, Any]:
    """Findings by rule. Raises ServerError, ScanFailed."""
    found: Mapping[str, Any] = _scan("audit", address, look)
    return found


def numbers(address: Address, look: Look[Any]) -> dict[str, Numbers | Exception]:
    """The numbers of all queues. Raises ServerError, ScanFailed."""
    statuses = [QueueStatus.from_dict(each) for each in _scan("queues", address, look)]
    return {status.queue: of_status(status) for status in statuses}


def _scan(task: str, address: Address, look: Look[Any]) -> Any:
    command = [sys.executable, "-m", "ferryman.cli.ui.scan_process"]
    # The address, with its password, goes through a pipe that nobody else can read.
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        timer = threading.Timer(LONGEST_S, process.kill)
        timer.daemon = True
        timer.start()
        try:
            process.stdin.write(json.dumps({"task": task, "url": address.url()}).encode() + b"\n")
            process.stdin.flush()
            for line in process.stdout:
                told = json.loads(line)
                if "result" in told:
                    return told["result"]
                if "failure" in told:
                    raise ScanFailed(told["failure"])
                look.progress = told["progress"]
                if look.wants_end.is_set():
                    raise ScanFailed("it was stopped")
        except BrokenPipeError:
            pass
        finally:
            timer.cancel()
            process.kill()
    raise ServerError(
        f"the scan has ended without a result (status {process.returncode}): is there memory enough, or was it stopped?"
    )
