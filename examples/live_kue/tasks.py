"""A Celery app on a running kue: it runs kue's email jobs, and publishes report jobs for kue's workers.

celery -A tasks worker -Q email        runs what producer.js creates
python tasks.py                        publishes a report, which worker.js runs
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery, Task

app = Celery("mailer", broker=os.environ.get("BROKER_URL", "ferryman://localhost:6379/0?family=kue"))


@app.task(bind=True, name="email")
def email(self: Task, payload: dict[str, Any]) -> dict[str, Any]:
    """One email job. What it returns is the job's result in kue; what it raises is its error, and kue's attempts decide."""
    self.update_state(state="PROGRESS", meta={"current": 1, "total": 2})
    return {"sent": payload["to"], "attempt": self.request.headers["ferryman"]["attempts"] + 1}


if __name__ == "__main__":
    app.send_task("report", [{"title": "sales"}], queue="report")
