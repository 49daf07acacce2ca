"""examples/monitoring against a real Prometheus, which scrapes a real ``ferryman metrics``."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from ferryman.schema.connection.call import run
from ferryman.schema.native.scripts.publication import Publication
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from ..support.command import ferryman
from ..support.endpoint import exporter
from ..support.servers import Server, free_port
from ..support.topologies import wait_until

EXAMPLES = Path(__file__).parents[2] / "examples" / "monitoring"
PROMETHEUS, PROMTOOL = shutil.which("prometheus"), shutil.which("promtool")
METRIC = re.compile(r"\bferryman_\w+")

scripts = QueueScripts()

needs_prometheus = pytest.mark.skipif(PROMETHEUS is None or PROMTOOL is None, reason="needs Debian's package prometheus")


def expressions() -> Iterator[str]:
    """Every expression of the dashboard and of the rules."""
    dashboard = json.loads((EXAMPLES / "dashboard.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["definition"]
    yield from re.findall(r"expr: (.*)", (EXAMPLES / "rules.yml").read_text(encoding="utf-8"))


def queue_with_everything(client: redis.Redis) -> None:
    """Waiting, held, dead and lapsed messages, and one that nobody wanted."""
    client.sadd("ferryman:queues", "mail")
    now = client.time()[0] * 1000
    run(client, scripts.declare("mail", {}))
    run(
        client,
        scripts.publish("mail", "p", [Publication(f"p-{n}", b'{"headers":{}}\n[]') for n in range(1, 6)], now=now - 900_000),
    )
    run(client, scripts.take("mail", "gone", 1, 1000, now=now - 600_000))
    first, second = run(client, scripts.take("mail", "ann", 2, 60_000, now=now - 500_000)).jobs
    run(client, scripts.ack("mail", "ann", [first.id], now=now - 499_000))
    run(client, scripts.reject("mail", "ann", second.id, "rejected", now=now - 499_000))
    run(client, scripts.forget("mail", "ann", now=now - 499_000))
    client.hset("ferryman:unroutable", "orders", "3")


@needs_prometheus
def test_each_metric_of_the_dashboard_and_of_the_rules_is_told(server: Server, client: redis.Redis) -> None:
    queue_with_everything(client)
    told = set(METRIC.findall(ferryman("metrics", server.url()).stdout))
    named = {name for expression in expressions() for name in METRIC.findall(expression)}
    assert len(named) > 15
    assert named - told == set()


@needs_prometheus
def test_rules_and_configuration_are_what_prometheus_takes() -> None:
    for words in (("check", "rules", "rules.yml"), ("check", "config", "prometheus.yml")):
        done = subprocess.run([str(PROMTOOL), *words], cwd=EXAMPLES, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@needs_prometheus
def test_alerts_fire_for_what_is_wrong_and_only_then() -> None:
    done = subprocess.run(
        [str(PROMTOOL), "test", "rules", "rules_test.yml"], cwd=EXAMPLES, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    alerts = set(re.findall(r"alert: (\w+)", (EXAMPLES / "rules.yml").read_text(encoding="utf-8")))
    tested = set(re.findall(r"alertname=\"(\w+)\"", (EXAMPLES / "rules_test.yml").read_text(encoding="utf-8")))
    assert tested == alerts


class Prometheus:
    """A Prometheus that is asked over HTTP."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.address}{path}?{urllib.parse.urlencode(query)}", timeout=60) as reply:
            return json.load(reply)["data"]

    def values(self, expression: str) -> list[float]:
        """What an expression is now; nothing before Prometheus listens."""
        try:
            return [float(each["value"][1]) for each in self.get("/api/v1/query", query=expression)["result"]]
        except OSError:
            return []


@pytest.fixture
def prometheus(server: Server, client: redis.Redis, tmp_path: Path) -> Iterator[Prometheus]:
    """One that scrapes the server of the test every half second, with the rules of the example."""
    queue_with_everything(client)
    port = free_port()
    with exporter(server.url(), "--listen", "0") as (_, address):
        text = (EXAMPLES / "prometheus.yml").read_text(encoding="utf-8")
        text = text.replace("15s", "500ms").replace("localhost:9808", urllib.parse.urlsplit(address).netloc)
        (tmp_path / "prometheus.yml").write_text(text, encoding="utf-8")
        shutil.copy(EXAMPLES / "rules.yml", tmp_path)
        options = (f"--config.file={tmp_path / 'prometheus.yml'}", f"--storage.tsdb.path={tmp_path / 'data'}")
        command = [str(PROMETHEUS), *options, f"--web.listen-address=127.0.0.1:{port}"]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
            try:
                yield Prometheus(port)
            finally:
                process.terminate()


@needs_prometheus
def test_a_real_prometheus_scrapes_a_real_queue_and_every_panel_can_be_drawn(prometheus: Prometheus) -> None:
    wait_until(lambda: prometheus.values('ferryman_queue_waiting{queue="mail"}') == [3.0])
    assert prometheus.values('ferryman_queue_wait_seconds_count{queue="mail"}') == [2.0]
    assert prometheus.values('ferryman_queue_run_seconds_sum{queue="mail"}') == [2.0]
    assert prometheus.values("histogram_quantile(0.5, ferryman_queue_run_seconds_bucket)")[0] <= 1.024
    for expression in expressions():
        if not expression.startswith("label_values"):
            prometheus.get("/api/v1/query", query=expression.replace("$__rate_interval", "1m").replace("$queue", ".*"))
    wait_until(lambda: "FerrymanQueueWithoutConsumers" in alerts(prometheus))
    assert "FerrymanServerDown" not in alerts(prometheus)


def alerts(prometheus: Prometheus) -> set[str]:
    """Alerts that are pending or firing."""
    return {each["labels"]["alertname"] for each in prometheus.get("/api/v1/alerts")["alerts"]}
