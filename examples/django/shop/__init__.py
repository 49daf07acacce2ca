"""The shop: its Celery app, which finds its settings and tasks through Django."""

from celery import Celery

app = Celery("shop")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
