"""Quotas of 0, which Kafka 3.9 lets one set: a Tidelog broker of its cluster keeps to them as it does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from foreign.broker_process import BrokerProcess
from tests.compat.conftest import available
from tests.compat.mixed_cluster import KAFKA, TIDELOG, MixedCluster
from tests.rigs.raw_client import RawClient
from tests.rigs.waiting import wait_until

from tidelog.errors import ErrorCode
from tidelog.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    EntityData,
    OpData,
)
from tidelog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.metadata import MetadataRequest, MetadataResponse

ADDRESS = "127.0.0.9"
ZEROS = {
    ("client-id", "no-time"): "request_percentage",
    ("client-id", "no-changes"): "controller_mutation_rate",
    ("client-id", "no-bytes"): "producer_byte_rate",
    ("ip", ADDRESS): "connection_creation_rate",
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, BrokerProcess]]:
    """The first is the controller."""
    with available(), MixedCluster(tmp_path_factory.mktemp("zeros")) as cluster:
        kafka = cluster.kafka(KAFKA)
        yield {"kafka": kafka, "tidelog": cluster.tidelog(TIDELOG)}


def client_of(broker: BrokerProcess, client_id: str = "other", source: str | None = None) -> RawClient:
    return RawClient("127.0.0.1", broker.port, client_id=client_id, source=source)


def pause_ms(broker: BrokerProcess, client_id: str) -> int:
    with client_of(broker, client_id) as client:
        return client.ask(9, MetadataRequest(topics=[]), MetadataResponse).throttle_time_ms


def is_turned_away(broker: BrokerProcess, source: str) -> bool:
    try:
        with client_of(broker, source=source) as client:
            client.ask(9, MetadataRequest(topics=[]), MetadataResponse)
    except ConnectionError:
        return True
    return False


def test_zeros_that_kafka_takes_hold_on_both(brokers: dict[str, BrokerProcess]) -> None:
    entries = [
        AlterClientQuotasRequestEntryData(
            entity=[EntityData(entity_type=kind, entity_name=name)], ops=[OpData(key=key, value=0.0)]
        )
        for (kind, name), key in ZEROS.items()
    ]
    with client_of(brokers["kafka"]) as admin:
        answer = admin.ask(1, AlterClientQuotasRequest(entries=entries), AlterClientQuotasResponse)
    assert {each.error_code for each in answer.entries} == {0}
    for broker in brokers.values():
        wait_until(lambda broker=broker: pause_ms(broker, "no-time") == 1000)  # type: ignore[misc]
        wait_until(lambda broker=broker: is_turned_away(broker, ADDRESS))  # type: ignore[misc]
        assert not is_turned_away(broker, "127.0.0.8")
        assert (
            pause_ms(broker, "no-bytes") == pause_ms(broker, "no-changes") == pause_ms(broker, "other") == 0
        )


def test_who_may_change_nothing_makes_one_change(brokers: dict[str, BrokerProcess]) -> None:
    def create(name: str) -> int:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=20_000)
        return client.ask(6, request, CreateTopicsResponse).topics[0].error_code

    def is_controller(broker: BrokerProcess) -> bool:
        """Nobody refuses as another than the controller what is not even to be done."""
        topic = CreatableTopic(name="no", num_partitions=1, replication_factor=1)
        with client_of(broker) as other:
            answer = other.ask(
                6, CreateTopicsRequest(topics=[topic], validate_only=True), CreateTopicsResponse
            )
        return answer.topics[0].error_code != ErrorCode.NOT_CONTROLLER

    made: dict[str, list[int]] = {}
    for name in ("kafka", "tidelog"):
        wait_until(lambda name=name: is_controller(brokers[name]))  # type: ignore[misc]
        with client_of(brokers[name], "no-changes") as client:
            made[name] = [create(f"{name}-{number}") for number in range(2)]
        # The next one is the controller.
        brokers[name].stop()
    assert made["kafka"] == made["tidelog"]
    assert made["kafka"][1] == ErrorCode.THROTTLING_QUOTA_EXCEEDED
