"""Debian's Prometheus scrapes three brokers under load and through a fault, and what shows pipelines.

Every query of the dashboards that come with Tidelog has an answer, the alerts are rules that Prometheus
takes, and they fire when a broker dies and clear when it is back.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from foreign import toolchain
from foreign.broker_process import free_port
from tests.compat.conftest import available
from tests.compat.mixed_cluster import MixedCluster

from tidelog import Consumer, Producer
from tidelog.client.admin.admin import Admin
from tidelog.client.resources import NewTopic
from tidelog.metrics import dashboards
from tidelog.metrics.alerts import ALERTS, rules
from tidelog.spark.pipelines.metrics_export import MetricsExport
from tidelog.spark.pipelines.quality import Quality
from tidelog.spark.pipelines.query_figures import QueryFigures

BROKERS = (1, 2, 3)
WAIT_S = 120.0
# What only some brokers have, or only after something has happened.
FIRES = {"UnderReplicatedPartitions", "BrokerDown"}


def wait(condition: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {WAIT_S} s"
        time.sleep(0.3)


def get(url: str, **headers: str) -> str:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as answer:
        return str(answer.read().decode())


class Prometheus:
    """A server on a directory of its own."""

    def __init__(self, programs: Path, directory: Path, targets: list[str]) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self._targets = targets
        self.promtool = programs / "promtool"
        directory.mkdir()
        soon = tuple(alert._replace(for_s=1) for alert in ALERTS)
        (directory / "rules.yml").write_text(rules(soon))
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(directory / "rules.yml")],
            "scrape_configs": [{"job_name": "tidelog", "static_configs": [{"targets": targets}]}],
        }
        (directory / "prometheus.yml").write_text(json.dumps(config))
        self._process = subprocess.Popen(
            [
                str(programs / "prometheus"),
                f"--config.file={directory / 'prometheus.yml'}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address={self.url.removeprefix('http://')}",
            ],
            stdout=subprocess.DEVNULL,
            stderr=(directory / "log").open("w"),
        )

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)

    def query(self, query: str) -> list[dict[str, Any]]:
        found = json.loads(get(f"{self.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}"))
        assert found["status"] == "success", (query, found)
        result: list[dict[str, Any]] = found["data"]["result"]
        return result

    def is_up(self) -> bool:
        try:
            return len(self.query("up == 1")) == len(self._targets)
        except OSError:
            return False

    def firing(self) -> set[str]:
        alerts = json.loads(get(f"{self.url}/api/v1/alerts"))["data"]["alerts"]
        return {each["labels"]["alertname"] for each in alerts if each["state"] == "firing"}


class Load:
    """A producer and a group that commits, in a thread each, until closed."""

    def __init__(self, bootstrap: str) -> None:
        self._over = threading.Event()
        self._bootstrap = bootstrap
        self._threads = [threading.Thread(target=each) for each in (self._produce, self._consume)]
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            while not self._over.wait(0.01):
                producer.send("orders", b"x" * 100)
                producer.send("single", b"x")

    def _consume(self) -> None:
        with Consumer(
            bootstrap_servers=self._bootstrap,
            group_id="readers",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=500,
        ) as consumer:
            consumer.subscribe(["orders", "single"])
            while not self._over.is_set():
                consumer.poll(0.2)

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)


@pytest.fixture(scope="module")
def watched(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[MixedCluster, dict[int, str], Prometheus]]:
    with available():
        programs = toolchain.prometheus()
    directory = tmp_path_factory.mktemp("watched")
    addresses = {each: f"127.0.0.1:{free_port()}" for each in BROKERS}
    with MixedCluster(directory, {"replica.lag.time.max.ms": "2000"}) as cluster:
        for each in BROKERS:
            cluster.tidelog(each, {"metrics.listeners": addresses[each]})
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            for result in admin.create_topics([NewTopic("orders", 6, 3), NewTopic("single", 6, 1)]):
                result.raise_for_error()
        prometheus = Prometheus(programs, directory / "prometheus", list(addresses.values()))
        load = Load(cluster.bootstrap)
        try:
            wait(prometheus.is_up, "all brokers are scraped")
            yield cluster, addresses, prometheus
        finally:
            load.close()
            prometheus.close()


def test_every_query_of_the_dashboards_has_an_answer(
    watched: tuple[MixedCluster, dict[int, str], Prometheus],
) -> None:
    _, _, prometheus = watched
    for dashboard in (dashboards.BROKERS, dashboards.TOPICS, dashboards.GROUPS):
        for query in dashboard.queries:
            wait(lambda query=query: prometheus.query(query), f"{dashboard.name} has data for {query}")  # type: ignore[misc]


def test_a_group_is_followed_without_an_exporter(
    watched: tuple[MixedCluster, dict[int, str], Prometheus],
) -> None:
    _, _, prometheus = watched

    def lags() -> list[float]:
        found = prometheus.query('kafka_consumergroup_lag{consumergroup="readers",topic="single"}')
        return [float(each["value"][1]) for each in found]

    wait(
        lambda: len(lags()) == 6 and min(lags()) >= 0,
        "the lag of all partitions is known, wherever they are led",
    )
    seconds = prometheus.query('kafka_consumergroup_lag_seconds{consumergroup="readers"}')
    assert all(float(each["value"][1]) < 60 for each in seconds)


def test_the_older_text_is_read_by_promtool_too(
    watched: tuple[MixedCluster, dict[int, str], Prometheus],
) -> None:
    _, addresses, prometheus = watched
    page = get(f"http://{addresses[1]}/metrics", Accept="text/plain")
    done = subprocess.run(
        [prometheus.promtool, "check", "metrics"], input=page, text=True, capture_output=True
    )
    # 3 is for names that it would have chosen otherwise.
    assert done.returncode in (0, 3), done.stderr
    assert "error while linting" not in done.stderr


def test_alerts_fire_when_a_broker_dies_and_clear_when_it_is_back(
    watched: tuple[MixedCluster, dict[int, str], Prometheus],
) -> None:
    cluster, addresses, prometheus = watched
    wait(lambda: not prometheus.firing() & FIRES, "nothing is wrong")
    assert get(f"http://{addresses[3]}/ready") == "ready\n"
    cluster.brokers[3].kill()
    wait(lambda: prometheus.firing() >= FIRES, "alerts fire")
    cluster.brokers[3].start()
    wait(lambda: not prometheus.firing() & FIRES, "alerts clear")


class Pipeline:
    """Figures as if a batch ended with every look, with more left to read and one more dead letter."""

    def __init__(self, export: MetricsExport) -> None:
        now_s = time.time()
        self._export = export
        self._looks = 0
        self._whole = QueryFigures(
            "earnings",
            True,
            input_rate=10.0,
            processed_rate=20.0,
            batch_s=0.5,
            phases_s={"addBatch": 0.4},
            batch_at_s=now_s,
            watermark_s=now_s,
            batch_quality=Quality(10, 1, 1, {"missing:ip": 1}, {"ip": 1}, {"ip": 10}),
        )
        self.up = True

    def wait(self, condition: Callable[[], Any], what: str) -> None:
        def look() -> Any:
            self._looks = looks = self._looks + 1
            shown = replace(
                self._whole,
                up=self.up,
                batches=looks,
                rows=10 * looks,
                behind=looks,
                late=looks,
                quality=Quality(10 * looks, looks, looks, {"missing:ip": looks}),
            )
            self._export.update([shown], {"earnings": 2000 + looks}, {"earnings": looks})
            return condition()

        wait(look, what)


def test_pipelines_are_shown_and_their_alerts_fire(tmp_path: Path) -> None:
    with available():
        programs = toolchain.prometheus()
    with MetricsExport(("127.0.0.1", 0), None, {}) as export:
        pipeline = Pipeline(export)
        prometheus = Prometheus(programs, tmp_path / "prometheus", [f"127.0.0.1:{export.port}"])
        try:
            pipeline.wait(prometheus.is_up, "pipelines are scraped")
            for query in dashboards.PIPELINES.queries:
                pipeline.wait(partial(prometheus.query, query), f"there is data for {query}")
            expected = {"PipelineFallsBehind", "PipelineDeadLetters"}
            pipeline.wait(lambda: prometheus.firing() >= expected, "it falls behind")
            assert "PipelineDown" not in prometheus.firing()
            pipeline.up = False
            pipeline.wait(lambda: "PipelineDown" in prometheus.firing(), "it is down")
            pipeline.up = True
            pipeline.wait(lambda: "PipelineDown" not in prometheus.firing(), "it is up again")
        finally:
            prometheus.close()
