"""Django and Celery on ferryman: an order is stored, and its task is enqueued when the transaction has been committed.

pip install django 'ferryman[celery]'
export DJANGO_SETTINGS_MODULE=settings
python -m django migrate --run-syncdb
python -m django runserver
celery -A shop worker
curl -X POST localhost:8000/orders/ann@example.com
"""

import os

SECRET_KEY = os.environ.get("SECRET_KEY", "for development only")
ALLOWED_HOSTS = ["localhost", "testserver"]
INSTALLED_APPS = ["shop"]
ROOT_URLCONF = "shop.urls"
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ.get("DATABASE", "shop.sqlite3")}}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CELERY_BROKER_URL = os.environ.get("BROKER_URL", "ferryman://localhost:6379/0")
CELERY_TASK_ACKS_LATE = True
