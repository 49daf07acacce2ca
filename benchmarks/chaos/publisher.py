"""Publisher: a thread that publishes a seeded mix of tasks through every fault.

It tells the ledger which tasks the broker has taken; those must run.
"""

from __future__ import annotations

import random
import threading
import time

from celery import Celery
from kombu.exceptions import OperationalError

from ..brokers import Broker
from ..server import Server
from .ledger import Ledger
from .profile import Profile
from .tasks import PUBLISH_RETRY

FORMS = ("early", "late", "slow", "eta", "retried")
SHARES = (30, 35, 5, 15, 15)
"""Per cent of each form."""
ETA_SECONDS = (1.0, 8.0)
SLOW_SECONDS = (0.5, 8.0)


class Publisher:
    """``start`` it, and ``join`` it when its time is up."""

    def __init__(self, broker: Broker, server: Server, ledger: Ledger, profile: Profile, seed: int) -> None:
        self._app = Celery("chaos", broker=broker.url(server), set_as_current=False)
        self._app.conf.task_publish_retry_policy = PUBLISH_RETRY
        self._ledger = ledger
        self._profile = profile
        self._chance = random.Random(seed)
        self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
        self._stopped = threading.Event()

    def start(self) -> None:
        """Publishes from now on."""
        self._thread.start()

    def join(self) -> None:
        """Publishes nothing more; returns when the publish under way has come to an end."""
        self._stopped.set()
        self._thread.join()
        self._app.close()

    def _run(self) -> None:
        number = 0
        while not self._stopped.wait(self._chance.expovariate(self._profile.rate)):
            number += 1
            self._publish(f"t{number}", self._chance.choices(FORMS, SHARES)[0])

    def _publish(self, name: str, form: str) -> None:
        task, due = f"chaos.{form}", 0.0
        args: list[object] = [name]
        options: dict[str, float] = {}
        if form == "eta":
            countdown = self._chance.uniform(*ETA_SECONDS)
            task, options, due = "chaos.late", {"countdown": countdown}, time.time() + countdown
        elif form == "slow":
            args.append(self._chance.uniform(*SLOW_SECONDS))
        try:
            self._app.send_task(task, args, **options)
        except (OperationalError, OSError):
            self._ledger.write("unsure", task=name, form=form, due=due)
        else:
            self._ledger.write("sent", task=name, form=form, due=due)
