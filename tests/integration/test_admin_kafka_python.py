"""Every admin call of kafka-python against a broker process; all of it holds on Apache Kafka too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import (
    InvalidPartitionsError,
    InvalidReplicationFactorError,
    InvalidTopicError,
    InvalidUpdateVersionError,
    OffsetOutOfRangeError,
    PolicyViolationError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

Names = Callable[[], str]
DEADLINE_S = 20.0


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


def _wait_for(what: Callable[[], Any], expected: Any) -> None:
    """A broker may take a moment to act on metadata that it has acknowledged."""
    deadline = time.monotonic() + DEADLINE_S
    while (found := what()) != expected:
        assert time.monotonic() < deadline, f"{found!r} did not become {expected!r}"


def _topic(name: str, *keys: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.TOPIC, name, dict.fromkeys(keys) or None)


def _config(admin: KafkaAdminClient, resource: ConfigResource, name: str, **asked: Any) -> dict[str, Any]:
    described = admin.describe_configs([resource], config_filter="all", **asked)
    ((configs,),) = (kind.values() for kind in described.values())
    found: dict[str, Any] = configs[name]
    return found


def _produce(bootstrap: str, topic: str, partition: int, count: int) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for _ in range(count):
        producer.send(topic, b"value", partition=partition)
    producer.flush()
    producer.close()


def test_topics_are_created_described_and_deleted(admin: KafkaAdminClient, topic_name: Names) -> None:
    name = topic_name()
    (created,) = admin.create_topics({name: {"num_partitions": 3, "configs": {"segment.ms": "5000"}}})[
        "topics"
    ]
    assert (created["num_partitions"], created["replication_factor"]) == (3, 1)
    assert created["configs"]["segment.ms"]["value"] == "5000"
    assert created["configs"]["segment.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    _wait_for(lambda: name in admin.list_topics(), True)
    (topic,) = admin.describe_topics([name])
    assert topic["topic_id"] == created["topic_id"]
    assert [each["partition_index"] for each in topic["partitions"]] == [0, 1, 2]
    assert "ALTER_CONFIGS" in topic["authorized_operations"]
    (deleted,) = admin.delete_topics([name])["topics"]
    assert (deleted["name"], deleted["topic_id"]) == (name, created["topic_id"])
    _wait_for(lambda: name in admin.list_topics(), False)


def test_validate_only_creates_nothing(admin: KafkaAdminClient, topic_name: Names) -> None:
    name = topic_name()
    (checked,) = admin.create_topics({name: {"num_partitions": 5}}, validate_only=True)["topics"]
    assert (checked["error_code"], checked["num_partitions"]) == (0, 5)
    assert name not in admin.list_topics()


def test_topics_that_cannot_be_are_refused(admin: KafkaAdminClient, topic_name: Names) -> None:
    name = topic_name()
    admin.create_topics([name])
    for topics, error in (
        ({name: {}}, TopicAlreadyExistsError),
        ({"not a name": {}}, InvalidTopicError),
        ({topic_name(): {"num_partitions": 0}}, InvalidPartitionsError),
        ({topic_name(): {"replication_factor": 100}}, InvalidReplicationFactorError),
        ({topic_name(): {"num_partitions": 2_000_000}}, PolicyViolationError),
    ):
        with pytest.raises(error):
            admin.create_topics(topics)
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([topic_name()])


def test_partitions_are_added_and_take_records(
    admin: KafkaAdminClient, bootstrap: str, topic_name: Names
) -> None:
    name = topic_name()
    admin.create_topics({name: {"num_partitions": 1}})
    admin.create_partitions({name: 3})
    _wait_for(lambda: len(admin.describe_topics([name])[0]["partitions"]), 3)
    _produce(bootstrap, name, 2, 4)
    offsets = admin.list_partition_offsets({TopicPartition(name, 2): -1})
    assert offsets[TopicPartition(name, 2)].offset == 4
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({name: 2})


def test_topic_configs_are_altered_appended_to_and_reset(admin: KafkaAdminClient, topic_name: Names) -> None:
    name = topic_name()
    admin.create_topics({name: {"configs": {"retention.ms": "1000"}}})
    changes = {"retention.ms": "5000", "cleanup.policy": ("APPEND", "compact")}
    assert admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, changes)]) == {
        "topic": {name: "OK"}
    }
    _wait_for(lambda: _config(admin, _topic(name), "retention.ms")["value"], "5000")
    policy = _config(admin, _topic(name), "cleanup.policy", include_synonyms=True)
    assert (policy["value"], policy["config_type"]) == ("delete,compact", "LIST")
    assert [each["value"] for each in policy["synonyms"]] == ["delete,compact", "delete"]
    admin.reset_configs([ConfigResource(ConfigResourceType.TOPIC, name, ["retention.ms"])])
    _wait_for(lambda: _config(admin, _topic(name), "retention.ms")["config_source"], "DEFAULT_CONFIG")


def test_bad_configs_are_refused_and_leave_the_old_ones(admin: KafkaAdminClient, topic_name: Names) -> None:
    name = topic_name()
    admin.create_topics([name])
    bad = ConfigResource(ConfigResourceType.TOPIC, name, {"retention.ms": "7", "segment.bytes": "none"})
    outcome = admin.alter_configs([bad], raise_on_unknown=False)["topic"][name]
    assert "Invalid value none for configuration segment.bytes: Not a number of type INT" in outcome
    assert _config(admin, _topic(name), "retention.ms")["value"] == "604800000"


def test_broker_options_change_while_the_broker_runs(admin: KafkaAdminClient, topic_name: Names) -> None:
    broker_id = str(admin.describe_cluster()["brokers"][0]["broker_id"])
    broker = ConfigResource(ConfigResourceType.BROKER, broker_id)
    name = topic_name()
    admin.create_topics([name])
    change = ConfigResource(ConfigResourceType.BROKER, broker_id, {"log.cleaner.min.compaction.lag.ms": "77"})
    assert admin.alter_configs([change]) == {"broker": {broker_id: "OK"}}
    try:
        option = "log.cleaner.min.compaction.lag.ms"
        _wait_for(lambda: _config(admin, broker, option)["value"], "77")
        assert _config(admin, broker, option)["config_source"] == "DYNAMIC_BROKER_CONFIG"
        _wait_for(lambda: _config(admin, _topic(name), "min.compaction.lag.ms")["value"], "77")
    finally:
        admin.reset_configs([ConfigResource(ConfigResourceType.BROKER, broker_id, [option])])
    _wait_for(lambda: _config(admin, _topic(name), "min.compaction.lag.ms")["value"], "0")
    fixed = ConfigResource(ConfigResourceType.BROKER, broker_id, {"log.dirs": "/elsewhere"})
    refusal = admin.alter_configs([fixed], raise_on_unknown=False)["broker"][broker_id]
    assert "Cannot update these configs dynamically: [log.dirs]" in refusal


def test_records_are_deleted_up_to_an_offset(
    admin: KafkaAdminClient, bootstrap: str, topic_name: Names
) -> None:
    name = topic_name()
    admin.create_topics([name])
    partition = TopicPartition(name, 0)
    _produce(bootstrap, name, 0, 10)
    assert admin.delete_records({partition: 4})[partition]["low_watermark"] == 4
    assert admin.list_partition_offsets({partition: -2})[partition].offset == 4
    assert admin.delete_records({partition: -1})[partition]["low_watermark"] == 10
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({partition: 11})


def test_log_dirs_and_producers_are_described(
    admin: KafkaAdminClient, bootstrap: str, topic_name: Names
) -> None:
    name = topic_name()
    admin.create_topics({name: {"num_partitions": 2}})
    _produce(bootstrap, name, 0, 3)
    (broker,) = admin.describe_log_dirs({name: [0, 1]})
    sizes = {
        each["partition_index"]: each["partition_size"]
        for log_dir in broker["log_dirs"]
        for topic in log_dir["topics"]
        for each in topic["partitions"]
    }
    assert sizes[0] > 0
    assert sizes[1] == 0
    assert all(0 < each["usable_bytes"] <= each["total_bytes"] for each in broker["log_dirs"])
    (state,) = admin.describe_producers([TopicPartition(name, 0)]).values()
    (producer,) = state.active_producers
    assert (producer.producer_epoch, producer.last_sequence) == (0, 2)


def test_the_cluster_is_described(admin: KafkaAdminClient) -> None:
    cluster = admin.describe_cluster()
    assert cluster["controller_id"] in [each["broker_id"] for each in cluster["brokers"]]
    assert len(cluster["cluster_id"]) == 22
    assert "ALTER" in cluster["authorized_operations"]


def test_partitions_are_described_page_by_page(admin: KafkaAdminClient, topic_name: Names) -> None:
    name = topic_name()
    admin.create_topics({name: {"num_partitions": 3}})
    _wait_for(lambda: len(admin.describe_topics([name])[0]["partitions"]), 3)
    first = admin.describe_topic_partitions([name], response_partition_limit=2)
    assert [each["partition_index"] for each in first["topics"][0]["partitions"]] == [0, 1]
    assert first["next_cursor"] == {"topic_name": name, "partition_index": 2}
    rest = admin.describe_topic_partitions([name], cursor=first["next_cursor"])
    assert [each["partition_index"] for each in rest["topics"][0]["partitions"]] == [2]
    assert rest["next_cursor"] is None


def test_elections_that_are_not_needed_say_so(admin: KafkaAdminClient, topic_name: Names) -> None:
    name = topic_name()
    admin.create_topics([name])
    response = admin.elect_leaders(0, {name: [0]}, raise_errors=False)
    (result,) = response.replica_election_results[0].partition_result
    assert (result.error_code, result.error_message) == (
        84,
        "Leader election not needed for topic partition.",
    )


def test_config_resources_are_listed(admin: KafkaAdminClient, topic_name: Names) -> None:
    name = topic_name()
    admin.create_topics([name])
    _wait_for(lambda: name in admin.list_config_resources(["TOPIC"])["topic"], True)
    broker_id = str(admin.describe_cluster()["brokers"][0]["broker_id"])
    assert admin.list_config_resources(["BROKER"]) == {"broker": [broker_id]}


def test_an_unknown_feature_cannot_be_finalized(admin: KafkaAdminClient) -> None:
    with pytest.raises(InvalidUpdateVersionError):
        admin.update_features({"no.such.feature": 1})
