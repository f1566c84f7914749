"""Payloads as Kafka 3.9 writes them, both ways."""

from __future__ import annotations

import json

import pytest

from tidelog.config.listeners import Listener
from tidelog.errors import StorageError
from tidelog.ids import TopicPartition, uuid_from_text
from tidelog.metadata.znodes import znode_requests, znodes

TOPIC_ID = uuid_from_text("3qVU1Wl6TuO5dhKmRI0Xtg")
ORDERS_0 = TopicPartition("orders", 0)


def test_paths_are_kafkas() -> None:
    assert znodes.broker_path(3) == "/brokers/ids/3"
    assert znodes.topic_path("orders") == "/brokers/topics/orders"
    assert znodes.partition_state_path(ORDERS_0) == "/brokers/topics/orders/partitions/0/state"
    assert znodes.topic_config_path("orders") == "/config/topics/orders"
    assert znodes.broker_config_path(3) == "/config/brokers/3"
    assert znodes.broker_config_path(None) == "/config/brokers/<default>"
    assert znodes.delete_topic_path("orders") == "/admin/delete_topics/orders"
    assert {
        "/brokers/ids",
        "/brokers/topics",
        "/config/changes",
        "/admin/delete_topics",
        "/config/topics",
    } < set(znodes.PERSISTENT_PATHS)


def test_a_broker_registers_with_version_5() -> None:
    registration = znodes.BrokerRegistration(
        broker_id=3,
        endpoints=(Listener("OUT", "host1", 9092, "PLAINTEXT"), Listener("IN", "::1", 9093, "PLAINTEXT")),
        rack="r1",
        timestamp_ms=2233345666,
    )
    raw = registration.encode()
    assert json.loads(raw) == {
        "version": 5,
        "host": "host1",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "2233345666",
        "endpoints": ["OUT://host1:9092", "IN://[::1]:9093"],
        "listener_security_protocol_map": {"OUT": "PLAINTEXT", "IN": "PLAINTEXT"},
        "rack": "r1",
        "features": {},
    }
    assert znodes.BrokerRegistration.decode(3, raw) == registration


@pytest.mark.parametrize(
    "raw",
    [
        b'{"version":1,"host":"localhost","port":9092,"jmx_port":9999,"timestamp":"2233345666"}',
        b'{"version":2,"host":"localhost","port":9092,"jmx_port":9999,"timestamp":"2233345666",'
        b'"endpoints":["PLAINTEXT://localhost:9092"]}',
        b'{"version":5,"host":"localhost","port":9092,"jmx_port":9999,"timestamp":"2233345666",'
        b'"endpoints":["PLAINTEXT://localhost:9092"],"listener_security_protocol_map":'
        b'{"PLAINTEXT":"PLAINTEXT"},"features":{}}',
    ],
)
def test_registrations_of_every_version_are_read(raw: bytes) -> None:
    registration = znodes.BrokerRegistration.decode(7, raw)
    assert registration.endpoints == (Listener("PLAINTEXT", "localhost", 9092, "PLAINTEXT"),)
    assert registration.timestamp_ms == 2233345666
    assert registration.jmx_port == 9999
    assert registration.rack is None


def test_a_topic_is_written_with_version_3() -> None:
    assignment = znodes.TopicAssignment(
        topic_id=TOPIC_ID,
        partitions={10: (1,), 0: (1, 2)},
        adding_replicas={0: (2,)},
        removing_replicas={10: ()},
    )
    raw = assignment.encode()
    assert raw == (
        b'{"removing_replicas":{},"partitions":{"0":[1,2],"10":[1]},"topic_id":"3qVU1Wl6TuO5dhKmRI0Xtg",'
        b'"adding_replicas":{"0":[2]},"version":3}'
    )
    decoded = znodes.TopicAssignment.decode("orders", raw)
    assert decoded.topic_id == TOPIC_ID
    assert list(decoded.partitions.items()) == [(0, (1, 2)), (10, (1,))]
    assert decoded.adding_replicas == {0: (2,)}


def test_a_topic_of_an_old_kafka_has_no_id() -> None:
    decoded = znodes.TopicAssignment.decode("orders", b'{"version":1,"partitions":{"0":[0]}}')
    assert decoded.topic_id is None
    assert decoded.partitions == {0: (0,)}


def test_partition_state_has_kafkas_json() -> None:
    state = znodes.PartitionState(leader=0, leader_epoch=4, isr=(0, 2), controller_epoch=9)
    raw = state.encode()
    assert raw == b'{"controller_epoch":9,"leader":0,"version":1,"leader_epoch":4,"isr":[0,2]}'
    assert znodes.PartitionState.decode(ORDERS_0, raw) == state
    recovering = znodes.PartitionState(
        leader=0, leader_epoch=4, isr=(0,), controller_epoch=9, leader_recovery_state=1
    )
    assert json.loads(recovering.encode())["leader_recovery_state"] == 1
    assert znodes.PartitionState.decode(ORDERS_0, recovering.encode()) == recovering


def test_small_payloads_have_kafkas_json() -> None:
    assert znodes.encode_cluster_id("abc") == b'{"version":"1","id":"abc"}'
    assert znodes.encode_controller(2, 55) == (
        b'{"version":2,"brokerid":2,"timestamp":"55","kraftControllerEpoch":-1}'
    )
    assert znodes.encode_controller_epoch(12) == b"12"
    assert znodes.encode_config({"retention.ms": "5"}) == b'{"version":1,"config":{"retention.ms":"5"}}'
    assert (
        znode_requests.encode_config_change("topics/orders") == b'{"version":2,"entity_path":"topics/orders"}'
    )
    assert znode_requests.encode_isr_change([ORDERS_0]) == (
        b'{"version":1,"partitions":[{"topic":"orders","partition":0}]}'
    )
    assert znode_requests.encode_log_dir_event(4) == b'{"version":1,"broker":4,"event":1}'
    assert (
        znodes.encode_feature({"f": 3})
        == b'{"version":2,"status":1,"features":{"f":{"max_version_level":3}}}'
    )
    assert znodes.ProducerIdBlock(1, 1000, 1999).encode() == (
        b'{"version":1,"broker":1,"block_start":"1000","block_end":"1999"}'
    )


def test_small_payloads_read_back() -> None:
    assert znodes.decode_cluster_id(znodes.encode_cluster_id("abc")) == "abc"
    assert znodes.decode_controller(znodes.encode_controller(2, 55)) == 2
    assert znodes.decode_controller(b'{"version":1,"brokerid":0,"timestamp":"1"}') == 0
    assert znodes.decode_controller_epoch(b"12") == 12
    assert znodes.decode_config("/config/topics/t", znodes.encode_config({"a": "b"})) == {"a": "b"}
    assert znodes.decode_config("/config/topics/t", b"") == {}
    assert znodes.decode_feature(znodes.encode_feature({"f": 3})) == {"f": 3}
    assert znodes.decode_feature(b'{"version":1,"status":0,"features":{}}') == {}
    block = znodes.ProducerIdBlock(1, 2**62, 2**62 + 999)
    assert znodes.ProducerIdBlock.decode(block.encode()) == block


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"{}", b'{"version":"x"}', b"\xff"])
def test_what_kafka_would_not_write_is_refused_with_its_path(raw: bytes) -> None:
    with pytest.raises(StorageError, match="metadata node /brokers/ids/1"):
        znodes.BrokerRegistration.decode(1, raw)
    with pytest.raises(StorageError, match="metadata node /brokers/topics/t"):
        znodes.TopicAssignment.decode("t", raw)
    with pytest.raises(StorageError, match="metadata node /brokers/topics/orders/partitions/0/state"):
        znodes.PartitionState.decode(ORDERS_0, raw)
    with pytest.raises(StorageError, match="metadata node /latest_producer_id_block"):
        znodes.ProducerIdBlock.decode(raw)
    with pytest.raises(StorageError, match="metadata node /cluster/id"):
        znodes.decode_cluster_id(raw)
    with pytest.raises(StorageError, match="metadata node /controller"):
        znodes.decode_controller(raw)
    with pytest.raises(StorageError, match="metadata node /controller_epoch"):
        znodes.decode_controller_epoch(raw)
