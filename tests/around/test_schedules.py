"""Schedulers of beat that keep their schedules elsewhere: they publish through ferryman:// like any producer."""

from __future__ import annotations

import pytest

from ..support.around import OWN_DB, app_of, beat, own_url, said
from ..support.topologies import wait_until
from ..support.workers import worker

NOTE = "tests.around.apps.schedules.note"


def test_redbeat_runs_what_stands_in_redis(server, ledger, tmp_path):
    pytest.importorskip("redbeat")
    entry = f"RedBeatSchedulerEntry('often', {NOTE!r}, schedule(0.5), args=['red'], app=app)"
    imports = "from redbeat import RedBeatSchedulerEntry\nfrom celery.schedules import schedule\n"
    said(server, "schedules", f"{imports}{entry}.save()")
    with (
        worker(server, tmp_path, pool="solo", app=app_of("schedules"), own=own_url(server)),
        beat(server, tmp_path, "schedules", "-S", "redbeat.RedBeatScheduler") as running,
    ):
        ledger.wait_for("run", 3)
    assert set(ledger.names("run")) == {"red"}
    assert "Traceback" not in running.log.read_text()
    with server.client() as broker, server.client(OWN_DB) as own:
        assert not broker.keys("redbeat*")
        assert own.exists("redbeat::schedule")


def test_redbeat_without_a_url_of_its_own_takes_the_brokers_and_beat_ends_with_the_schemes_it_knows(server, tmp_path):
    pytest.importorskip("redbeat")
    with beat(server, tmp_path, "schedules", "-S", "redbeat.RedBeatScheduler", unset=1) as running:
        running.process.wait(120)
    assert "Redis URL must specify one of the following schemes" in running.log.read_text()


def test_django_celery_beat_runs_what_stands_in_the_database(server, ledger, tmp_path):
    pytest.importorskip("django_celery_beat")
    database = str(tmp_path / "beat.sqlite")
    program = f"""
from django.core.management import call_command
call_command("migrate", verbosity=0)
from django_celery_beat.models import IntervalSchedule, PeriodicTask
every, _ = IntervalSchedule.objects.get_or_create(every=1, period="seconds")
PeriodicTask.objects.create(name="often", task={NOTE!r}, interval=every, args='["django"]', priority=3)
"""
    said(server, "schedules", program, database=database)
    count = "from django_celery_beat.models import PeriodicTask\nprint(PeriodicTask.objects.get(name='often').total_run_count)"
    scheduler = "django_celery_beat.schedulers:DatabaseScheduler"
    with (
        worker(server, tmp_path, pool="solo", app=app_of("schedules"), own=own_url(server)),
        beat(server, tmp_path, "schedules", "-S", scheduler, database=database) as running,
    ):
        ledger.wait_for("run", 3)
        running.stop()
    assert set(ledger.names("run")) == {"django"}
    assert "Traceback" not in running.log.read_text()
    wait_until(lambda: int(said(server, "schedules", count, database=database)) >= 3)
