"""A Celery app on a running qless or reqless: it runs the jobs of class email in the queue mail.

celery -A tasks worker -Q mail         runs what producer.py puts
"""

from __future__ import annotations

import os
from typing import Any

from celery import Celery

app = Celery("mailer", broker=os.environ.get("BROKER_URL", "ferryman://localhost:6379/0?family=qless"))


@app.task(name="email")
def email(payload: dict[str, Any]) -> None:
    """One job of the class. To raise is final in qless: the job fails in the group ``mail-<exception>``."""
    print(f"mail to {payload['to']}")
