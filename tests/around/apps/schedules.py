"""Tasks that RedBeat, django-celery-beat and celery-batches run; Django is set up where it is there."""

from __future__ import annotations

import importlib.util
import os

from celery import Celery

from ...support.tasks import BROKER, record

app = Celery("schedules", broker=BROKER)
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)
if not os.environ.get("FERRYMAN_TEST_UNSET"):
    app.conf.update(redbeat_redis_url=os.environ["FERRYMAN_TEST_OWN"], redbeat_redis_options={})
app.conf.update(beat_max_loop_interval=1, redbeat_lock_timeout=5)

if os.environ.get("FERRYMAN_TEST_DATABASE") and importlib.util.find_spec("django"):
    import django
    from django.conf import settings

    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["FERRYMAN_TEST_DATABASE"]}},
        INSTALLED_APPS=["django_celery_beat"],
        USE_TZ=True,
    )
    django.setup()


@app.task
def note(name: object) -> None:
    """Runs at once."""
    record("run", name)
