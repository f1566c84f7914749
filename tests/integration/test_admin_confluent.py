"""The admin client of librdkafka against a broker process; all of it holds on Apache Kafka too."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    ElectionType,
    KafkaError,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

Names = Callable[[], str]
DEADLINE_S = 20.0


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def _result(futures: dict[Any, Any]) -> Any:
    (future,) = futures.values()
    return future.result(DEADLINE_S)


def _refusal(futures: dict[Any, Any]) -> KafkaError:
    with pytest.raises(KafkaException) as refused:
        _result(futures)
    error: KafkaError = refused.value.args[0]
    return error


def _wait_for(what: Callable[[], Any], expected: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while (found := what()) != expected:
        assert time.monotonic() < deadline, f"{found!r} did not become {expected!r}"


def _config(admin: AdminClient, name: str, option: str) -> ConfigEntry:
    found: ConfigEntry = _result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]))[option]
    return found


def test_topics_are_created_described_and_deleted(admin: AdminClient, topic_name: Names) -> None:
    name = topic_name()
    _result(admin.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "1000"})]))
    _wait_for(lambda: name in admin.list_topics(timeout=DEADLINE_S).topics, True)
    topic = _result(admin.describe_topics(TopicCollection([name]), include_authorized_operations=True))
    assert [each.id for each in topic.partitions] == [0, 1]
    assert topic.authorized_operations
    assert not topic.is_internal
    _result(admin.delete_topics([name]))
    _wait_for(lambda: name in admin.list_topics(timeout=DEADLINE_S).topics, False)


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (
            NewTopic("not a name"),
            KafkaError.TOPIC_EXCEPTION,
            "Topic name is invalid: 'not a name' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'",
        ),
        (
            NewTopic("wide", replication_factor=100),
            KafkaError.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 100 time(s): The target replication factor of 100 cannot be "
            "reached because only 1 broker(s) are registered",
        ),
        (
            NewTopic("odd", config={"no.such.option": "1"}),
            KafkaError.INVALID_CONFIG,
            "Unknown topic config name: no.such.option",
        ),
        (
            NewTopic("odd", config={"cleanup.policy": "shred"}),
            KafkaError.INVALID_CONFIG,
            "Invalid value shred for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            NewTopic("placed", 1, replica_assignment=[[4711]]),
            KafkaError.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes broker 4711, but no such broker is registered.",
        ),
    ],
    ids=["name", "factor", "option", "value", "assignment"],
)
def test_topics_that_cannot_be_are_refused_with_kafkas_words(
    admin: AdminClient, topic: NewTopic, code: int, message: str
) -> None:
    error = _refusal(admin.create_topics([topic]))
    assert error.code() == code
    assert error.str().startswith(message)


def test_one_bad_topic_does_not_keep_the_others(admin: AdminClient, topic_name: Names) -> None:
    good = topic_name()
    futures = admin.create_topics([NewTopic(good), NewTopic("not a name")])
    futures[good].result(DEADLINE_S)
    with pytest.raises(KafkaException):
        futures["not a name"].result(DEADLINE_S)
    _wait_for(lambda: good in admin.list_topics(timeout=DEADLINE_S).topics, True)


def test_partitions_are_added(admin: AdminClient, topic_name: Names) -> None:
    name = topic_name()
    _result(admin.create_topics([NewTopic(name, 1)]))
    _result(admin.create_partitions([NewPartitions(name, 4)]))
    _wait_for(lambda: len(admin.list_topics(name, timeout=DEADLINE_S).topics[name].partitions), 4)
    error = _refusal(admin.create_partitions([NewPartitions(name, 4)]))
    assert (error.code(), error.str()) == (
        KafkaError.INVALID_PARTITIONS,
        "Topic already has 4 partition(s).",
    )


def test_configs_are_edited_one_by_one(admin: AdminClient, topic_name: Names) -> None:
    name = topic_name()
    _result(admin.create_topics([NewTopic(name, config={"segment.ms": "9000"})]))
    edits = [
        ConfigEntry("retention.ms", "5000", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("segment.ms", None, incremental_operation=AlterConfigOpType.DELETE),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    ]
    resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=edits)
    _result(admin.incremental_alter_configs([resource]))
    _wait_for(lambda: _config(admin, name, "retention.ms").value, "5000")
    assert ConfigSource(_config(admin, name, "segment.ms").source) is ConfigSource.DEFAULT_CONFIG
    policy = _config(admin, name, "cleanup.policy")
    assert (policy.value, ConfigSource(policy.source)) == (
        "delete,compact",
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
    )
    assert [each.value for each in policy.synonyms.values()] == ["delete,compact", "delete"]


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated")
def test_alter_configs_replaces_what_it_does_not_name(admin: AdminClient, topic_name: Names) -> None:
    name = topic_name()
    _result(admin.create_topics([NewTopic(name, config={"segment.ms": "9000"})]))
    _result(admin.alter_configs([ConfigResource(ResourceType.TOPIC, name, {"flush.ms": "1234"})]))
    _wait_for(lambda: _config(admin, name, "flush.ms").value, "1234")
    assert _config(admin, name, "segment.ms").value == "604800000"


def test_records_are_deleted_up_to_an_offset(admin: AdminClient, bootstrap: str, topic_name: Names) -> None:
    name = topic_name()
    _result(admin.create_topics([NewTopic(name)]))
    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(10):
        producer.produce(name, b"value", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    deleted = _result(admin.delete_records([TopicPartition(name, 0, 6)]))
    assert deleted.low_watermark == 6
    earliest = _result(admin.list_offsets({TopicPartition(name, 0): OffsetSpec.earliest()}))
    assert earliest.offset == 6
    error = _refusal(admin.delete_records([TopicPartition(name, 0, 99)]))
    assert error.code() == KafkaError.OFFSET_OUT_OF_RANGE


def test_the_cluster_is_described(admin: AdminClient) -> None:
    cluster = admin.describe_cluster(include_authorized_operations=True).result(DEADLINE_S)
    assert cluster.controller.id in [node.id for node in cluster.nodes]
    assert cluster.authorized_operations
    assert cluster.cluster_id


def test_elections_that_are_not_needed_say_so(admin: AdminClient, topic_name: Names) -> None:
    name = topic_name()
    _result(admin.create_topics([NewTopic(name)]))
    partition = TopicPartition(name, 0)
    outcome = admin.elect_leaders(ElectionType.PREFERRED, [partition]).result(DEADLINE_S)
    assert outcome[partition].code() == KafkaError.ELECTION_NOT_NEEDED
