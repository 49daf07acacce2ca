"""ScanProcess: reads a whole keyspace in a process of its own, so that pages stay quick and its memory is given back: an audit,
or numbers that no index tells.

    python -m ferryman.cli.ui.scan_process    stdin: one line of JSON, {"task": "audit" | "queues", "url": …}
                                              stdout: lines of JSON: {"progress": …}, at last {"result": …} or {"failure": …}

Ends when its stdin is closed, so it never outlives who started it. Started by ``scans.py``.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from typing import Any

from ...migrations.local import LocalEngine
from ...migrations.source import open_source
from ...schema.connection.address import Address
from ...schema.errors import FerrymanError, UsageError
from ...schema.rule import Finding
from ...schema.text import dump_json
from ..audit_page import HARMS, calendar, doubts
from ..findings import Digest

MOST_KEYS = 2_000_000
"""Larger keyspaces are for the command line, and for Spark."""
EXAMPLES = 10
"""Cases of one rule."""


def main() -> None:
    """Does what the line on stdin says."""
    request = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    os.nice(10)
    address = Address.parse(request["url"])
    try:
        result = {"audit": _audit, "queues": _queues}[request["task"]](address)
    except (FerrymanError, OSError) as error:
        _tell({"failure": str(error)})
        return
    _tell({"result": result})


def _audit(address: Address) -> dict[str, Any]:
    """All findings by rule, the worst first, and how many jobs there are."""
    digest = Digest(EXAMPLES)
    now_ms = _now(address)
    census = LocalEngine().audit(address, now_ms, digest.add, _progress)
    rules = {rule.id: rule for rule in address.key_family.rules}
    groups = []
    for name, severity, number, examples in digest.groups():
        rule = rules.get(name)
        groups.append(
            {
                "rule": name,
                "severity": str(severity),
                "number": number,
                "title": rule.title if rule else "",
                "harm": HARMS[rule.harm] if rule else "",
                "repair": examples[0].repair,
                "is_repairable": name in address.key_family.repairable,
                "examples": [_example(each) for each in examples],
            }
        )
    return {
        "groups": groups,
        "jobs": census.jobs,
        "rules": len(rules),
        "moment": calendar(now_ms),
        "doubts": list(doubts(census)),
    }


def _example(finding: Finding) -> dict[str, Any]:
    return {"job": finding.job_id, "key": finding.key, "queue": finding.queue, "detail": finding.detail}


def _queues(address: Address) -> list[dict[str, Any]]:
    """What ``ferryman queues --format json`` prints."""
    now_ms = _now(address)
    return [status.to_dict() for status in LocalEngine().queues(address, now_ms)]


def _now(address: Address) -> int:
    with open_source(address) as source:
        return source.clock_ms()


def _progress(phase: str, done: int, total: int | None) -> None:
    if phase.startswith("reading") and done > MOST_KEYS:
        raise UsageError(
            f"the keyspace has more than {MOST_KEYS:,} keys: ferryman audit URL reads it where there is memory for it, with "
            "--engine spark on many machines"
        )
    _tell({"progress": f"{phase}, {done:,}" + (f" of {total:,}" if total else "")})


def _tell(value: dict[str, Any]) -> None:
    sys.stdout.write(dump_json(value) + "\n")
    sys.stdout.flush()


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
