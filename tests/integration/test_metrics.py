"""A broker tells of what real clients did, over HTTP, and of their requests in its log."""

from __future__ import annotations

import http.client
import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from tests.integration.command_line import CommandLine
from tests.rigs.tls_files import TlsFiles
from tests.rigs.waiting import wait_until

from tidelog import Consumer, Producer
from tidelog.client.admin.admin import Admin
from tidelog.client.resources import (
    AlterConfigOp,
    AlterConfigOpType,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tidelog.testing.broker_process import BrokerProcess

WAIT_S = 30.0


class Watched:
    """A broker process, and the pages that it has."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process
        found = re.search(r"Metrics are at (https?://\S+)/metrics", process.log)
        assert found is not None
        self.url = found[1]

    def page(self, path: str = "/metrics", **headers: str) -> str:
        request = urllib.request.Request(self.url + path, headers=headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())

    def value(self, name: str, **labels: str) -> float | None:
        """A series of the page, by its name and all its labels; None if it is not there."""
        for line in self.page().splitlines():
            found = re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line)
            if found is not None and dict(re.findall(r'(\w+)="([^"]*)"', found[1] or "")) == labels:
                return float(found[2])
        return None


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    options = {
        "metrics.listeners": "127.0.0.1:0",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        "message.max.bytes": "5000",
    }
    with BrokerProcess(tmp_path_factory.mktemp("watched") / "data", options=options) as process:
        yield Watched(process)


@pytest.fixture(scope="module")
def topic(watched: Watched) -> str:
    """A topic to which ten records were written, six of which a group has read."""
    with Admin(bootstrap_servers=watched.process.bootstrap) as admin:
        for result in admin.create_topics([NewTopic("orders", 1)]):
            result.raise_for_error()
    producer = confluent_kafka.Producer({"bootstrap.servers": watched.process.bootstrap})
    for number in range(10):
        producer.produce("orders", b"%d" % number)
    assert producer.flush(WAIT_S) == 0
    with Consumer(
        bootstrap_servers=watched.process.bootstrap,
        group_id="readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_poll_records=6,
    ) as consumer:
        consumer.subscribe(["orders"])
        read = 0
        while not read:
            read = len(list(consumer.poll(1.0)))
        consumer.commit()
    return "orders"


def test_records_and_bytes_are_counted_by_topic_and_in_all(watched: Watched, topic: str) -> None:
    prefix = "kafka_server_brokertopicmetrics_"
    assert watched.value(f"{prefix}messagesin_total", topic=topic) == 10
    bytes_in = watched.value(f"{prefix}bytesin_total", topic=topic)
    assert bytes_in == watched.value("kafka_log_log_size", topic=topic, partition="0")
    assert (watched.value(f"{prefix}bytesin_total") or 0) > (bytes_in or 0)
    assert (watched.value(f"{prefix}bytesout_total", topic=topic) or 0) > 0
    assert watched.value("kafka_log_log_logendoffset", topic=topic, partition="0") == 10


def test_requests_are_counted_and_timed_in_parts(watched: Watched, topic: str) -> None:
    page = watched.page()
    assert re.search(r'requestmetrics_requests_total\{request="Produce",version="\d+"\} [1-9]', page)
    for part in ("totaltimems", "localtimems", "responsesendtimems"):
        found = watched.value(f"kafka_network_requestmetrics_{part}", request="Produce", quantile="0.99")
        assert found is not None
        assert found > 0
    joins = watched.value("kafka_network_requestmetrics_errors_total", request="JoinGroup", error="NONE")
    assert joins is not None
    produced = watched.value("tidelog_request_duration_seconds_bucket", request="Produce", le="+Inf")
    assert produced == watched.value("tidelog_request_duration_seconds_count", request="Produce")


def test_a_groups_lag_is_told_by_its_coordinator(watched: Watched, topic: str) -> None:
    where = {"consumergroup": "readers", "topic": topic, "partition": "0"}
    committed = watched.value("kafka_consumergroup_current_offset", **where)
    assert committed is not None
    assert watched.value("kafka_consumergroup_lag", **where) == 10 - committed
    assert watched.value("kafka_consumergroup_group_sum_lag", group="readers") == 10 - committed
    assert watched.value("kafka_coordinator_group_groupmetadatamanager_numgroups") == 1


def test_refused_batches_are_counted(watched: Watched, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": watched.process.bootstrap})
    failures: list[object] = []
    producer.produce(topic, b"x" * 8000, on_delivery=lambda error, _: failures.append(error))
    producer.flush(WAIT_S)
    assert failures[0] is not None
    rejected = watched.value("kafka_server_brokertopicmetrics_bytesrejected_total", topic=topic)
    assert rejected is not None
    assert rejected > 8000
    errors = watched.value(
        "kafka_network_requestmetrics_errors_total", request="Produce", error="MESSAGE_TOO_LARGE"
    )
    assert errors == 1


def test_what_is_produced_without_an_answer_has_no_code(watched: Watched) -> None:
    with Admin(bootstrap_servers=watched.process.bootstrap) as admin:
        for result in admin.create_topics([NewTopic("unanswered", 1)]):
            result.raise_for_error()

    def answered() -> float | None:
        errors = "kafka_network_requestmetrics_errors_total"
        return watched.value(errors, request="Produce", error="NONE")

    before = answered() or 0
    options = {"bootstrap.servers": watched.process.bootstrap, "acks": 0, "batch.num.messages": 1}
    producer = confluent_kafka.Producer(options)
    for number in range(20):
        producer.produce("unanswered", b"%d" % number)
    producer.flush(WAIT_S)
    end = "kafka_log_log_logendoffset"
    wait_until(lambda: watched.value(end, topic="unanswered", partition="0") == 20, "all is written")
    assert answered() == before


def test_connections_are_told_by_listener_and_software(watched: Watched) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": watched.process.bootstrap, "group.id": "unused"}
    )
    try:
        consumer.list_topics(timeout=WAIT_S)
        wait_until(
            lambda: re.search(r'connections_software\{clientSoftwareName="[^"]*kafka', watched.page()),
            "the client's software is named",
        )
        assert (
            watched.value(
                "kafka_server_socket_server_metrics_connection_count",
                listener="PLAINTEXT",
                networkProcessor="0",
            )
            or 0
        ) >= 1
    finally:
        consumer.close()


def test_requests_and_bytes_are_counted_by_listener(watched: Watched) -> None:
    def told(name: str) -> float:
        where = {"listener": "PLAINTEXT", "networkProcessor": "0"}
        found = watched.value(f"kafka_server_socket_server_metrics_{name}", **where)
        assert found is not None
        return found

    names = ("request_total", "incoming_byte_total", "outgoing_byte_total")
    before = {name: told(name) for name in names}
    with Producer(bootstrap_servers=watched.process.bootstrap) as producer:
        producer.send("sized", bytes(4000)).result(WAIT_S)
        while_open = {name: told(name) for name in names}
    assert while_open["request_total"] >= before["request_total"] + 3
    assert before["incoming_byte_total"] + 4000 < while_open["incoming_byte_total"]
    assert before["outgoing_byte_total"] + 100 < while_open["outgoing_byte_total"]
    # What closed connections have sent stays counted.
    assert all(told(name) >= while_open[name] for name in names)
    assert told("reauthentication_latency_max") == told("successful_reauthentication_rate") == 0
    # One loop serves all listeners: only one that is kept apart has figures of its own.
    assert "controlplane" not in watched.page()


def test_the_page_is_openmetrics_for_who_asks_for_it(watched: Watched) -> None:
    page = watched.page(Accept="application/openmetrics-text; version=1.0.0")
    assert page.endswith("# EOF\n")
    assert "# TYPE kafka_server_brokertopicmetrics_messagesin counter\n" in page


def test_no_series_is_there_twice_and_families_are_in_one_piece(watched: Watched, topic: str) -> None:
    names: list[str] = []
    series: set[str] = set()
    for line in watched.page().splitlines():
        if line.startswith("# TYPE"):
            names.append(line.split()[2])
        elif not line.startswith("#"):
            key = line.rpartition(" ")[0]
            assert key not in series
            series.add(key)
            assert key.startswith(names[-1])
    assert len(names) == len(set(names))


def test_a_broker_alone_runs_as_its_controller(watched: Watched) -> None:
    assert watched.value("kafka_server_kafkaserver_brokerstate") == 4


def test_a_broker_is_live_and_ready(watched: Watched) -> None:
    assert watched.page("/live") == "live\n"
    wait_until(lambda: watched.page("/ready") == "ready\n", "the broker is ready")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        watched.page("/nothing")


def test_every_request_is_logged_while_somebody_wants_it(watched: Watched, topic: str) -> None:
    with Admin(bootstrap_servers=watched.process.bootstrap) as admin:
        _set(admin, AlterConfigOp("kafka.request.logger", "DEBUG"))
        with Producer(bootstrap_servers=watched.process.bootstrap) as producer:
            producer.send(topic, b"logged").result(WAIT_S)

        def told() -> list[dict[str, Any]]:
            found = re.findall(r"Completed request:(\{.*\}) \(kafka\.request\.logger\)", watched.process.log)
            return [json.loads(each) for each in found]

        wait_until(
            lambda: any(each["requestHeader"]["requestApiKeyName"] == "PRODUCE" for each in told()), "logged"
        )
        produce = next(each for each in told() if each["requestHeader"]["requestApiKeyName"] == "PRODUCE")
        assert produce["principal"] == "User:ANONYMOUS"
        assert produce["listener"] == "PLAINTEXT"
        assert produce["totalTimeMs"] >= produce["localTimeMs"] > 0
        assert produce["request"]["acks"] == -1
        (answered,) = produce["response"]["responses"][0]["partitionResponses"]
        assert (answered["errorCode"], answered["baseOffset"]) == (0, 10)
        _set(admin, AlterConfigOp("kafka.request.logger", None, AlterConfigOpType.DELETE))
        settled = len(told())
        admin.list_topics()
        assert len(told()) <= settled + 1


def _set(admin: Admin, op: AlterConfigOp) -> None:
    for result in admin.alter_configs({ConfigResource(ResourceType.BROKER_LOGGER, "1"): [op]}):
        result.raise_for_error()


def test_slow_requests_are_logged_with_their_parts(tmp_path: Path) -> None:
    options = {"tidelog.slow.request.log.ms": "0"}
    with BrokerProcess(tmp_path / "data", options=options) as process:
        with Admin(bootstrap_servers=process.bootstrap) as admin:
            admin.list_topics()
        wait_until(lambda: "Slow request: Metadata version" in process.log, "slow requests are logged")
        assert "[broker 1] Tidelog " in process.log
        assert "tidelog.slow.request.log.ms=0" in process.log
        assert "Metrics are at" not in process.log


def test_with_https_only_who_has_a_certificate_is_told(tmp_path: Path) -> None:
    files = TlsFiles(tmp_path / "tls")
    options = {
        "metrics.listeners": "https://127.0.0.1:0",
        "listener.name.metrics.ssl.keystore.location": str(files.server),
        "listener.name.metrics.ssl.truststore.location": str(files.trust),
        "listener.name.metrics.ssl.client.auth": "required",
    }
    with BrokerProcess(tmp_path / "data", options=options) as process:
        watched = Watched(process)
        assert watched.url.startswith("https://")
        context = ssl.create_default_context(cafile=str(files.trust))
        with pytest.raises((OSError, http.client.HTTPException)):
            urllib.request.urlopen(f"{watched.url}/live", timeout=10, context=context).read()
        context.load_cert_chain(files.client)
        with urllib.request.urlopen(f"{watched.url}/metrics", timeout=10, context=context) as answer:
            page = str(answer.read().decode())
        assert re.search(
            r'tidelog_tls_certificate_expires_at_timestamp_seconds\{listener="METRICS"\} [1-9]', page
        )

        properties = tmp_path / "client.properties"
        properties.write_text(
            f"ssl.truststore.location={files.trust}\nssl.keystore.location={files.client}\n"
        )
        found = CommandLine(process.bootstrap).json(
            *("clients", "list", "--metrics", watched.url, "--interval", "0.1"),
            *("--command-config", str(properties)),
        )
        assert [each["client_id"] for each in found["clients"]] == ["tidelog-cli"]
