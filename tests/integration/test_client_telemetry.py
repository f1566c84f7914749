"""Clients' telemetry with clients that push: librdkafka, and our own bytes; and subscriptions by command."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.command_line import CommandLine
from tests.rigs.raw_client import RawClient
from tests.rigs.waiting import wait_until

from tidelog import Producer
from tidelog.errors import ErrorCode
from tidelog.ids import Uuid
from tidelog.metrics.otlp import (
    Metric,
    NumberPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
    Temporality,
    encode,
)
from tidelog.records.compression import Codec, compress
from tidelog.testing.broker_process import BrokerProcess
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from tidelog.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

WAIT_S = 60.0
OPTIONS = {"metrics.listeners": "127.0.0.1:0", "tidelog.client.metrics.max.series": "2000"}


class Watched:
    """A broker process and its pages."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process
        found = re.search(r"Metrics are at (http://\S+)/metrics", process.log)
        assert found is not None
        self.url = found[1]

    def page(self, path: str = "/metrics") -> str:
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            return str(answer.read().decode())

    def clients(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.page("/telemetry"))["clients"]
        return found

    def raw(self, client_id: str = "raw") -> RawClient:
        return RawClient(self.process.host, self.process.port, client_id=client_id)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with BrokerProcess(tmp_path_factory.mktemp("telemetry") / "data", options=OPTIONS) as process:
        yield Watched(process)


@pytest.fixture
def run(watched: Watched) -> CommandLine:
    return CommandLine(watched.process.bootstrap)


def ask(client: RawClient, instance_id: Uuid) -> GetTelemetrySubscriptionsResponse:
    return client.ask(
        0,
        GetTelemetrySubscriptionsRequest(client_instance_id=instance_id),
        GetTelemetrySubscriptionsResponse,
    )


def push(client: RawClient, instance_id: Uuid, subscription_id: int, metrics: bytes, codec: Codec) -> int:
    request = PushTelemetryRequest(
        client_instance_id=instance_id,
        subscription_id=subscription_id,
        compression_type=codec,
        metrics=metrics,
    )
    return client.ask(0, request, PushTelemetryResponse).error_code


def test_librdkafka_pushes_what_a_subscription_asks_for(watched: Watched, run: CommandLine) -> None:
    run.ok(
        *("configs", "alter", "--client-metrics", "fast", "--set", "interval.ms=100"),
        *("--set", "metrics=org.apache.kafka.producer.", "--set", "match=client_id=pusher"),
    )
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": watched.process.bootstrap, "client.id": "pusher", "enable.metrics.push": True}
    )
    admin = AdminClient({"bootstrap.servers": watched.process.bootstrap})
    admin.create_topics([NewTopic("pushed", 1)])["pushed"].result(WAIT_S)
    producer.produce("pushed", b"value")
    assert producer.flush(WAIT_S) == 0
    wait_until(lambda: "kafka_client_producer_" in watched.page(), "librdkafka has pushed nothing")
    found = [each for each in watched.clients() if each["client_id"] == "pusher"]
    assert len(found) == 1
    assert found[0]["client_software_name"] == "confluent-kafka-python"
    assert all(each["name"].startswith("kafka_client_producer_") for each in found[0]["metrics"])
    assert re.search(
        r'kafka_client_info\{client_id="pusher",.*client_source_address="127.0.0.1"', watched.page()
    )
    instances = re.search(r"kafka_server_client_metrics_instance_count (\d+)", watched.page())
    assert instances is not None
    assert int(instances[1]) >= 1
    assert "kafka_server_client_metrics_plugin_error_count 0\n" in watched.page()
    # Its last push does not wait for the interval; what it pushed is still there afterwards.
    del producer
    assert any(each["client_id"] == "pusher" for each in watched.clients())


def test_our_own_clients_push(watched: Watched, run: CommandLine) -> None:
    run.ok(
        *("configs", "alter", "--client-metrics", "ours", "--set", "interval.ms=100"),
        *("--set", "metrics=*", "--set", "match=client_id=ours"),
    )
    with Producer(bootstrap_servers=watched.process.bootstrap, client_id="ours") as producer:
        producer.send("ours", value=b"value").result(WAIT_S)
        wait_until(lambda: 'client_id="ours"' in watched.page(), "our producer has pushed nothing")
    (found,) = [each for each in watched.clients() if each["client_id"] == "ours"]
    assert found["client_software_name"].startswith("tidelog")
    assert any(each["name"].startswith("kafka_client_producer_") for each in found["metrics"])
    assert "kafka_server_client_metrics_plugin_error_count 0\n" in watched.page()


def test_subscriptions_are_listed_described_deleted_and_refused(watched: Watched, run: CommandLine) -> None:
    name = "odd name/% ü"
    run.ok(
        "configs",
        "alter",
        "--client-metrics",
        name,
        "--set",
        "metrics=a.,b.",
        "--append",
        "match=client_id=x",
    )
    assert f"client-metrics\t{name}" in run.ok("configs", "list", "--type", "client-metrics")
    (resource,) = run.json("configs", "describe", "--client-metrics", name)
    assert {each["name"]: each["value"] for each in resource["configs"]} == {
        "metrics": "a.,b.",
        "match": "client_id=x",
    }
    refused = run.refusal("configs", "alter", "--client-metrics", name, "--set", "interval.ms=99")
    assert "interval must be between 100 and 3600000" in refused
    run.ok("configs", "alter", "--client-metrics", name, "--delete", "metrics", "--delete", "match")
    assert name not in run.ok("configs", "list")


def advertised(process: BrokerProcess) -> set[int]:
    with RawClient(process.host, process.port) as client:
        request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
        return {each.api_key for each in client.ask(3, request, ApiVersionsResponse).api_keys}


def test_requests_are_advertised_once_somebody_has_subscribed(tmp_path: Path) -> None:
    """Clients to which they are shown use them, and some write a line about that."""
    with BrokerProcess(tmp_path / "data") as process:
        run = CommandLine(process.bootstrap)
        assert not {71, 72} & advertised(process)
        run.ok("configs", "alter", "--client-metrics", "some", "--set", "metrics=*")
        assert {71, 72, 74} <= advertised(process)
        run.ok("configs", "alter", "--client-metrics", "some", "--delete", "metrics")
        assert not {71, 72} & advertised(process)


def test_pushes_of_our_own_bytes_add_up_and_hostile_ones_do_no_harm(
    watched: Watched, run: CommandLine
) -> None:
    run.ok(
        *("configs", "alter", "--client-metrics", "own", "--set", "interval.ms=100"),
        *("--set", "metrics=*", "--set", "match=client_id=own"),
    )
    me = Uuid(b"telemetry-tests!")
    point = Sum([NumberPoint(2, {"topic": 'a"\n'})], Temporality.DELTA, is_monotonic=True)
    good = encode([ResourceMetrics([ScopeMetrics([Metric("org.apache.kafka.x.total", point)])])])
    with watched.raw("own") as client:
        answer = ask(client, me)
        assert (answer.client_instance_id, answer.push_interval_ms) == (me, 100)
        assert (answer.requested_metrics, answer.delta_temporality) == (["*"], True)
        assert answer.accepted_compression_types == [4, 3, 1, 2]
        known = answer.subscription_id
        for codec in (Codec.ZSTD, Codec.NONE):

            def taken(packed: bytes = compress(codec, good), codec: Codec = codec) -> bool:
                code = push(client, me, known, packed, codec)
                assert code in (ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED)
                return code == ErrorCode.NONE

            wait_until(taken, "a push is never taken")
        line = 'client_software_name="unknown",client_software_version="unknown",topic="a\\"\\n"} 4\n'
        assert line in watched.page()
        for number, (hostile, codec, code) in enumerate(
            [
                (compress(Codec.GZIP, bytes(50 << 20)), Codec.GZIP, ErrorCode.TELEMETRY_TOO_LARGE),
                (bytes((1 << 20) + 1), Codec.NONE, ErrorCode.TELEMETRY_TOO_LARGE),
                (b"\xff" * 1000, Codec.NONE, ErrorCode.INVALID_RECORD),
                (b"\x0a\x00" * 500_000, Codec.NONE, ErrorCode.TELEMETRY_TOO_LARGE),
            ]
        ):
            other = Uuid(b"hostile-client-%d" % number + b"!")
            assert push(client, other, ask(client, other).subscription_id, hostile, codec) == code
        assert ask(client, Uuid(b"telemetry-tests?")).error_code == ErrorCode.NONE
