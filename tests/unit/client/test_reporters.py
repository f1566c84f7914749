from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tidelog.client.consumer.async_consumer import AsyncConsumer
from tidelog.client.consumer.interceptors import ConsumerInterceptor
from tidelog.client.metrics import ClientMetric
from tidelog.client.producer import AsyncProducer
from tidelog.client.producer.interceptors import ProducerInterceptor
from tidelog.client.reporters import MetricsReporter, listeners_among, reporters_from
from tidelog.errors import ConfigError


class Notes(MetricsReporter):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.options: Mapping[str, object] = {}
        self.metrics: dict[str, ClientMetric] = {}
        self.clusters: list[str | None] = []

    def configure(self, options: Mapping[str, object]) -> None:
        self.told.append("configure")
        self.options = options

    def context_change(self, context: Mapping[str, str]) -> None:
        self.told.append(context["_namespace"])

    def init(self, metrics: Sequence[ClientMetric]) -> None:
        self.told.append("init")
        self.metrics = {metric.name: metric for metric in metrics}

    def metric_change(self, metric: ClientMetric) -> None:
        self.metrics[metric.name] = metric

    def metric_removal(self, metric: ClientMetric) -> None:
        del self.metrics[metric.name]

    def close(self) -> None:
        self.told.append("close")

    def on_update(self, cluster_id: str | None) -> None:
        self.clusters.append(cluster_id)


class Failing(MetricsReporter):
    def init(self, metrics: Sequence[ClientMetric]) -> None:
        raise RuntimeError("no")

    def close(self) -> None:
        raise RuntimeError("no")


class Listening:
    """A serializer, deserializer or interceptor that wants to know its cluster."""

    def __init__(self) -> None:
        self.clusters: list[str | None] = []

    def serialize(self, topic: str, value: Any) -> bytes | None:
        return bytes(value)

    def deserialize(self, topic: str, data: bytes | None) -> Any:
        return data

    def on_update(self, cluster_id: str | None) -> None:
        self.clusters.append(cluster_id)


class ListeningProducerInterceptor(Listening, ProducerInterceptor):
    pass


class ListeningConsumerInterceptor(Listening, ConsumerInterceptor):
    def on_update(self, cluster_id: str | None) -> None:
        super().on_update(cluster_id)
        raise RuntimeError("it is logged")


def test_a_reporter_is_told_of_all_figures_and_of_its_cluster(scripted_broker: Any) -> None:
    notes = Notes()

    async def main() -> None:
        async with (
            scripted_broker,
            AsyncProducer(
                bootstrap_servers=scripted_broker.address, metric_reporters=[notes, Failing], client_id="me"
            ) as producer,
        ):
            await producer.cluster.wait_for_update(0, producer.cluster.deadline(), "brokers")
            assert notes.metrics.keys() >= {"record-send-total", "buffer-total-bytes", "connection-count"}
            assert notes.metrics["buffer-total-bytes"].value() == 32 << 20
            assert "request-total{node-id=node-7}" in notes.metrics
            assert notes.metrics["connection-count"].name.tags == {"client-id": "me"}
            assert set(notes.metrics) == set(producer.metrics())

    asyncio.run(main())
    assert notes.told == ["configure", "kafka.producer", "init", "close"]
    assert notes.options["client.id"] == "me"
    assert set(notes.clusters) == {"scripted"}


def test_serializers_and_interceptors_may_listen_for_the_cluster(
    scripted_broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    sending: list[Any]
    reading: list[Any]
    sending, reading = (
        [Listening(), ListeningProducerInterceptor()],
        [Listening(), ListeningConsumerInterceptor()],
    )

    async def main() -> None:
        async with scripted_broker:
            at = scripted_broker.address
            async with (
                AsyncProducer(
                    bootstrap_servers=at, value_serializer=sending[0], interceptor_classes=[sending[1]]
                ) as producer,
                AsyncConsumer(
                    bootstrap_servers=at, key_deserializer=reading[0], interceptor_classes=[reading[1]]
                ) as consumer,
            ):
                for cluster in (producer.cluster, consumer.cluster):
                    await cluster.wait_for_update(0, cluster.deadline(), "brokers")

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert all(set(each.clusters) == {"scripted"} for each in (*sending, *reading))
    assert "failed on the cluster's id" in caplog.text


def test_reporters_are_objects_classes_or_names_of_classes() -> None:
    notes = Notes()
    found = reporters_from([notes, Notes, f"{__name__}.Notes", "org.apache.kafka.common.metrics.JmxReporter"])
    assert len(found) == 3
    assert reporters_from([]) == ()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("no.such.module.Reporter", "cannot be imported"),
        (f"{__name__}.Nobody", "cannot be imported"),
        ("Reporter", "cannot be imported"),
        (f"{__name__}.Listening", "objects or classes of MetricsReporter"),
        (42, "objects or classes of MetricsReporter"),
    ],
)
def test_what_is_no_reporter_is_refused(given: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        AsyncProducer(bootstrap_servers="127.0.0.1:1", metric_reporters=[given])


def test_a_listener_is_found_behind_its_method() -> None:
    listening = Listening()
    assert listeners_among([listening.serialize, None, str, listening]) == (listening, listening)
