"""Task message: the Celery message (protocol 2) for a job of another system: its name as task, its payload as argument.

Pure. Called by the transport, which delivers such jobs, and by ``publishing.py``, which publishes them.
"""

from __future__ import annotations

from typing import Any

from ..text import load_json

JSON_HEAD = {"content-type": "application/json", "content-encoding": "utf-8"}


def task_message(job_id: str, queue: str, name: str, payload: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Headers, properties and body of ``name(payload)``. Raises MalformedValue for a payload that is no JSON."""
    load_json(payload)
    headers = {
        "lang": "py",
        "task": name,
        "id": job_id,
        "root_id": job_id,
        "parent_id": None,
        "group": None,
        "retries": 0,
        "eta": None,
        "expires": None,
        "timelimit": [None, None],
        "argsrepr": "(<payload>,)",
        "kwargsrepr": "{}",
        "origin": "ferryman",
        "ignore_result": False,
    }
    body = b"[[" + payload + b'],{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]'
    return headers, {"correlation_id": job_id, "delivery_info": {"exchange": "", "routing_key": queue}}, body
