from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.rigs.waiting import until

from tidelog.client._telemetry.payload import Ledger, telemetry_name
from tidelog.client.errors import RequestTimeoutError
from tidelog.client.metrics import MetricName
from tidelog.client.producer import AsyncProducer
from tidelog.errors import ConfigError, ErrorCode
from tidelog.ids import ZERO_UUID, random_uuid
from tidelog.metrics import otlp
from tidelog.records.compression import Codec, decompress
from tidelog.wire.api import ApiKey
from tidelog.wire.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from tidelog.wire.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

WAIT_S = 30
NODE_REQUESTS = "org.apache.kafka.producer.node.request.total"


class Receiver:
    """A scripted broker that wants figures of its clients."""

    def __init__(self, broker: Any, *metrics: str, **fields: Any) -> None:
        self.instance_id = random_uuid()
        self.asked: list[GetTelemetrySubscriptionsRequest] = []
        self.pushed: list[PushTelemetryRequest] = []
        self.refusals: list[ErrorCode] = []
        self.push_refusals: list[ErrorCode] = []
        self.answer: dict[str, Any] = {
            "subscription_id": 5,
            "accepted_compression_types": [],
            "push_interval_ms": 100,
            "requested_metrics": list(metrics),
            **fields,
        }
        broker.versions[ApiKey.GET_TELEMETRY_SUBSCRIPTIONS] = (0, 0)
        broker.versions[ApiKey.PUSH_TELEMETRY] = (0, 0)
        broker.handlers[ApiKey.GET_TELEMETRY_SUBSCRIPTIONS] = self._subscription
        broker.handlers[ApiKey.PUSH_TELEMETRY] = self._push

    def _subscription(self, request: Any, version: int) -> GetTelemetrySubscriptionsResponse:
        self.asked.append(request)
        if self.refusals:
            return GetTelemetrySubscriptionsResponse(error_code=self.refusals.pop(0))
        return GetTelemetrySubscriptionsResponse(client_instance_id=self.instance_id, **self.answer)

    def _push(self, request: Any, version: int) -> PushTelemetryResponse:
        self.pushed.append(request)
        if not self.push_refusals:
            return PushTelemetryResponse()
        # The client may ask again at once: the next subscription is another one from now on.
        self.answer["subscription_id"] += 1
        return PushTelemetryResponse(error_code=self.push_refusals.pop(0))

    def read(self, number: int = -1) -> dict[str, otlp.Metric]:
        request = self.pushed[number]
        data = decompress(Codec(request.compression_type), request.metrics)
        (resource,) = otlp.decode(data)
        return {metric.name: metric for scope in resource.scopes for metric in scope.metrics}


def run(broker: Any, action: Callable[[AsyncProducer], Awaitable[None]], /, **options: Any) -> None:
    async def main() -> None:
        async with broker, asyncio.timeout(WAIT_S):
            settings = {"bootstrap.servers": broker.address, "enable.idempotence": False, **options}
            async with AsyncProducer(settings) as producer:
                await action(producer)

    asyncio.run(main())


def test_figures_are_pushed_as_they_were_asked_for(scripted_broker: Any) -> None:
    codecs = [int(Codec.ZSTD), int(Codec.GZIP)]
    receiver = Receiver(
        scripted_broker, NODE_REQUESTS, "org.apache.kafka.producer.m", accepted_compression_types=codecs
    )

    async def action(producer: AsyncProducer) -> None:
        await until(lambda: len(receiver.pushed) >= 2)

    run(scripted_broker, action, **{"client.id": "c", "enable.idempotence": True, "transactional.id": "tx"})
    assert receiver.asked[0].client_instance_id == ZERO_UUID
    first = receiver.pushed[0]
    assert first.client_instance_id == receiver.instance_id
    assert (first.subscription_id, first.terminating, first.compression_type) == (5, False, Codec.ZSTD)
    (resource,) = otlp.decode(decompress(Codec.ZSTD, first.metrics))
    assert resource.attributes == {"transactional_id": "tx"}
    found = receiver.read(0)
    assert all(name == NODE_REQUESTS or name.startswith("org.apache.kafka.producer.m") for name in found)
    requests = found[NODE_REQUESTS].data
    assert isinstance(requests, otlp.Sum)
    assert requests.temporality is otlp.Temporality.CUMULATIVE
    assert requests.is_monotonic
    (point,) = requests.points
    assert point.attributes == {"node_id": "node-7"}
    assert point.value is not None
    assert point.value >= 3
    assert 0 < point.start_ns < point.time_ns
    assert isinstance(found["org.apache.kafka.producer.metadata.age"].data, otlp.Gauge)


def test_the_last_push_says_that_it_is_the_last(scripted_broker: Any) -> None:
    receiver = Receiver(scripted_broker, "*", push_interval_ms=3_600_000)

    async def action(producer: AsyncProducer) -> None:
        assert await producer.client_instance_id() == receiver.instance_id

    run(scripted_broker, action)
    assert [request.terminating for request in receiver.pushed] == [True]
    assert len(receiver.read()) > 60


def test_deltas_are_of_what_has_happened_since_the_push_before(scripted_broker: Any) -> None:
    receiver = Receiver(scripted_broker, NODE_REQUESTS, delta_temporality=True)

    async def action(producer: AsyncProducer) -> None:
        await until(lambda: len(receiver.pushed) >= 3)

    run(scripted_broker, action)
    points: list[otlp.NumberPoint] = []
    for number in range(3):
        data = receiver.read(number)[NODE_REQUESTS].data
        assert isinstance(data, otlp.Sum)
        assert data.temporality is otlp.Temporality.DELTA
        points += data.points
    # Between two pushes nothing but a push was sent.
    assert [point.value for point in points[1:]] == [1, 1]
    assert points[1].start_ns == points[0].time_ns


def test_where_nothing_is_wanted_nothing_is_pushed_but_asked_again_later(scripted_broker: Any) -> None:
    receiver = Receiver(scripted_broker, push_interval_ms=20)

    async def action(producer: AsyncProducer) -> None:
        await until(lambda: len(receiver.asked) >= 3)
        receiver.answer["requested_metrics"] = ["*"]
        await until(lambda: receiver.pushed)

    run(scripted_broker, action)
    assert {request.client_instance_id for request in receiver.asked[1:]} == {receiver.instance_id}


@pytest.mark.parametrize(
    "code",
    [ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.TELEMETRY_TOO_LARGE, ErrorCode.THROTTLING_QUOTA_EXCEEDED],
)
def test_a_push_that_is_refused_makes_the_client_ask_again(scripted_broker: Any, code: ErrorCode) -> None:
    receiver = Receiver(scripted_broker, "*")
    receiver.push_refusals = [code]

    async def action(producer: AsyncProducer) -> None:
        await until(lambda: receiver.pushed and receiver.pushed[-1].subscription_id == 6)

    run(scripted_broker, action)
    assert len(receiver.asked) == 2


@pytest.mark.parametrize("code", [ErrorCode.INVALID_REQUEST, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
def test_what_trying_again_cannot_mend_ends_the_telemetry(scripted_broker: Any, code: ErrorCode) -> None:
    receiver = Receiver(scripted_broker, "*", push_interval_ms=1)
    receiver.push_refusals = [code]

    async def action(producer: AsyncProducer) -> None:
        await until(lambda: receiver.pushed)
        # The refusal has been taken note of once this task is over.
        await until(lambda: all(task.get_name() != "client telemetry" for task in asyncio.all_tasks()))

    run(scripted_broker, action)
    assert (len(receiver.asked), len(receiver.pushed)) == (1, 1)


def test_a_broker_that_is_lost_is_asked_again(scripted_broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.client._telemetry.telemetry._RETRY_MS", 10)
    receiver = Receiver(scripted_broker, "*")
    answer = scripted_broker.handlers[ApiKey.PUSH_TELEMETRY]

    def cut(request: Any, version: int) -> Any:
        scripted_broker.handlers[ApiKey.PUSH_TELEMETRY] = answer
        raise ConnectionError

    scripted_broker.handlers[ApiKey.PUSH_TELEMETRY] = cut

    async def action(producer: AsyncProducer) -> None:
        await until(lambda: receiver.pushed)

    run(scripted_broker, action, **{"reconnect.backoff.ms": 1})
    assert len(receiver.asked) == 2


def test_brokers_without_telemetry_are_not_asked(scripted_broker: Any) -> None:
    async def action(producer: AsyncProducer) -> None:
        await producer.cluster.wait_for_update(0, producer.cluster.deadline(), "brokers")
        with pytest.raises(RequestTimeoutError, match="set up to receive client metrics"):
            await producer.client_instance_id(timeout=0.05)

    run(scripted_broker, action)
    assert not scripted_broker.requests(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS)


def test_it_can_be_switched_off(scripted_broker: Any) -> None:
    receiver = Receiver(scripted_broker, "*")

    async def action(producer: AsyncProducer) -> None:
        await producer.cluster.wait_for_update(0, producer.cluster.deadline(), "brokers")
        with pytest.raises(ConfigError, match=r"enable\.metrics\.push=true"):
            await producer.client_instance_id()

    run(scripted_broker, action, **{"enable.metrics.push": False})
    assert not receiver.asked


def test_names_are_those_of_the_kip() -> None:
    name = MetricName("request-latency-avg", "producer-node-metrics", {"client-id": "c", "node-id": "node-1"})
    assert telemetry_name(name) == "org.apache.kafka.producer.node.request.latency.avg"
    assert telemetry_name(MetricName("count", "kafka-metrics-count")) == "org.apache.kafka.kafka.count.count"
    name = MetricName("records-lag", "consumer-fetch-manager-metrics")
    assert telemetry_name(name) == "org.apache.kafka.consumer.fetch.manager.records.lag"


def test_a_sum_that_begins_anew_is_not_told_as_less_than_nothing() -> None:
    ledger, name = Ledger(), MetricName("x-total")
    assert ledger.point(name, 10, 100, delta=True)[0] == 10
    assert ledger.point(name, 15, 200, delta=True) == (5, 100)
    assert ledger.point(name, 2, 300, delta=True) == (2, 200)
    ledger.forget()
    assert ledger.point(name, 7, 400, delta=True)[0] == 7
