"""Clients' telemetry (KIP-714) with Kafka's own tools and clients.

Subscriptions are set by kafka-client-metrics.sh and kafka-configs.sh of either generation; Java clients and
librdkafka push, and what they push is seen on /metrics.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from foreign.broker_process import Tidelog, free_port

TOOL = "org.apache.kafka.tools.ClientMetricsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
WAIT_S = 60.0
pytestmark = pytest.mark.timeout(900)
Tool = Callable[..., subprocess.CompletedProcess[str]]


class Watched:
    """A broker that tells of itself."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        options = {
            "metrics.listeners": f"127.0.0.1:{self.port}",
            "auto.create.topics.enable": "true",
            "group.initial.rebalance.delay.ms": "0",
        }
        self.broker = Tidelog(directory, options)

    def page(self, path: str = "/metrics") -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as answer:
            return str(answer.read().decode())

    def client(self, client_id: str) -> dict[str, Any]:
        """What has been pushed by the one client of that name."""
        found = [
            each for each in json.loads(self.page("/telemetry"))["clients"] if each["client_id"] == client_id
        ]
        assert len(found) == 1, f"{len(found)} clients {client_id} have pushed"
        client: dict[str, Any] = found[0]
        return client


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    running = Watched(tmp_path_factory.mktemp("telemetry"))
    running.broker.start()
    yield running
    running.broker.stop()


@pytest.fixture
def run(kafka_tool: Tool, watched: Watched) -> Callable[..., str]:
    def run_(main: str, *arguments: str, timeout: float = 240) -> str:
        done = kafka_tool(main, "--bootstrap-server", watched.broker.address, *arguments, timeout=timeout)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run_


def test_kafkas_tools_set_list_describe_and_delete_subscriptions(run: Callable[..., str]) -> None:
    run(
        *(TOOL, "--alter", "--name", "by-tool", "--interval", "30000"),
        *("--metrics", "org.apache.kafka.producer.,org.apache.kafka.consumer.", "--match", "client_id=a.*"),
    )
    assert "by-tool" in run(TOOL, "--list").split()
    described = run(TOOL, "--describe", "--name", "by-tool")
    for text in ("interval.ms=30000", "metrics=org.apache.kafka.producer.,org", "match=client_id=a.*"):
        assert text in described
    of_configs = ("--entity-type", "client-metrics", "--entity-name", "by-tool")
    run(CONFIGS, "--alter", *of_configs, "--add-config", "interval.ms=40000")
    assert "interval.ms=40000" in run(CONFIGS, "--describe", *of_configs)
    run(TOOL, "--delete", "--name", "by-tool")
    assert "by-tool" not in run(TOOL, "--list").split()


def test_a_bad_subscription_is_refused_in_kafkas_words(kafka_tool: Tool, watched: Watched) -> None:
    done = kafka_tool(
        *(TOOL, "--bootstrap-server", watched.broker.address, "--alter", "--name", "bad", "--interval", "99"),
        timeout=240,
    )
    assert "interval must be between 100 and 3600000" in done.stdout + done.stderr


def test_java_clients_push(
    request: pytest.FixtureRequest, run: Callable[..., str], kafka_tool: Tool, watched: Watched
) -> None:
    version = request.node.callspec.params["kafka_tool"]
    subscription, producer, consumer = f"java-{version}", f"producer-{version}", f"consumer-{version}"
    topic = f"telemetry-{version}"
    run(
        *(TOOL, "--alter", "--name", subscription, "--interval", "200", "--metrics", "*"),
        *("--match", f"client_software_name=apache-kafka-java,client_id=.*-{re.escape(version)}"),
    )
    done = kafka_tool(
        *(PRODUCER, "--topic", topic, "--num-records", "60", "--throughput", "20", "--record-size", "10"),
        *("--producer-props", f"bootstrap.servers={watched.broker.address}", f"client.id={producer}"),
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run(
        *(
            CONSUMER,
            "--topic",
            topic,
            "--from-beginning",
            "--timeout-ms",
            "15000",
            "--group",
            f"group-{version}",
        ),
        *("--consumer-property", f"client.id={consumer}"),
        timeout=240,
    )
    pushed = watched.client(producer)
    assert pushed["client_software_name"] == "apache-kafka-java"
    assert pushed["client_software_version"].startswith(version.removeprefix("kafka-"))
    values = {each["name"]: each["value"] for each in pushed["metrics"]}
    # What a push that came too early would have brought is lost: Java's clients begin anew all the same.
    sent = values["kafka_client_producer_record_send_total"]
    assert 0 < sent <= 60
    assert any(each["labels"].startswith("topic=") for each in pushed["metrics"])
    read = watched.client(consumer)
    assert read["about"]["group_id"] == f"group-{version}"
    names = {each["name"] for each in read["metrics"]}
    assert "kafka_client_consumer_fetch_manager_records_consumed_total" in names
    page = watched.page()
    shown = re.search(
        rf'kafka_client_producer_record_send_total\{{client_id="{producer}"[^}}]*\}} (\S+)\n', page
    )
    assert shown is not None
    assert float(shown[1]) == sent
    assert re.search(r"^kafka_server_client_metrics_plugin_error_count 0$", page, re.MULTILINE)
    run(TOOL, "--delete", "--name", subscription)


def test_librdkafka_pushes_to_a_subscription_that_kafkas_tool_has_set(
    request: pytest.FixtureRequest, run: Callable[..., str], watched: Watched
) -> None:
    name = f"rd-{request.node.callspec.params['kafka_tool']}"
    run(
        TOOL, "--alter", "--name", name, "--interval", "100", "--metrics", "*", "--match", f"client_id={name}"
    )
    producer = confluent_kafka.Producer({"bootstrap.servers": watched.broker.address, "client.id": name})
    producer.produce(name, b"value")
    assert producer.flush(WAIT_S) == 0
    end = time.monotonic() + WAIT_S
    while f'client_id="{name}"' not in watched.page():
        assert time.monotonic() < end, "librdkafka has pushed nothing"
        time.sleep(0.05)
    assert watched.client(name)["client_software_name"] == "confluent-kafka-python"
    run(TOOL, "--delete", "--name", name)
