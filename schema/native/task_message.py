"""Task message: the Celery message (protocol 2) for a job of another system: its name as task, its payload as argument.

Pure. Called by the transport, which delivers such jobs, and by ``publishing.py``, which publishes them; its
headers also by ``operations/enqueue.py``.
"""

from __future__ import annotations

from typing import Any

from ..text import load_json

JSON_HEAD = {"content-type": "application/json", "content-encoding": "utf-8"}


def task_headers(task_id: str, task: str, *, argsrepr: str, kwargsrepr: str, origin: str) -> dict[str, Any]:
    """The headers of a task that nothing but its name and arguments is known of."""
    return {
        "lang": "py",
        "task": task,
        "id": task_id,
        "root_id": task_id,
        "parent_id": None,
        "group": None,
        "retries": 0,
        "eta": None,
        "expires": None,
        "timelimit": [None, None],
        "argsrepr": argsrepr,
        "kwargsrepr": kwargsrepr,
        "origin": origin,
        "ignore_result": False,
    }


def task_message(job_id: str, queue: str, name: str, payload: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Headers, properties and body of ``name(payload)``. Raises MalformedValue for a payload that is no JSON."""
    load_json(payload)
    headers = task_headers(job_id, name, argsrepr="(<payload>,)", kwargsrepr="{}", origin="ferryman")
    body = b"[[" + payload + b'],{},{"callbacks":null,"errbacks":null,"chain":null,"chord":null}]'
    return headers, {"correlation_id": job_id, "delivery_info": {"exchange": "", "routing_key": queue}}, body
