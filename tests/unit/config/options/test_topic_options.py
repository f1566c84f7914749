from __future__ import annotations

import pytest

from tidelog.config.broker_config import BrokerConfig
from tidelog.config.options.topic_options import TOPIC_OPTIONS, TopicConfig, check_topic_overrides
from tidelog.errors import ConfigError, ErrorCode, KafkaError

DEFAULTS = BrokerConfig().topic_defaults()


def test_a_topics_own_entries_win_over_the_brokers_defaults() -> None:
    config = TopicConfig(DEFAULTS, {"retention.ms": "5", "cleanup.policy": "compact"})
    assert config["retention.ms"] == 5
    assert config["cleanup.policy"] == ("compact",)
    assert config["segment.bytes"] == 1 << 30
    assert set(config) == set(TOPIC_OPTIONS)
    assert config.overrides == {"retention.ms": "5", "cleanup.policy": "compact"}


def test_a_bad_own_entry_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"retention\.ms"):
        TopicConfig(DEFAULTS, {"retention.ms": "soon"})


# Code and message as Kafka 4.3 answered IncrementalAlterConfigs.
@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"foo": "1"}, "Unknown topic config name: foo"),
        (
            {"retention.ms": "abc"},
            "Invalid value abc for configuration retention.ms: Not a number of type LONG",
        ),
        (
            {"retention.ms": "-5"},
            "Invalid value -5 for configuration retention.ms: Value must be at least -1",
        ),
        (
            {"segment.bytes": "1"},
            "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576",
        ),
        (
            {"cleanup.policy": "delete,foo"},
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            {"min.compaction.lag.ms": "9223372036854775807", "max.compaction.lag.ms": "5"},
            "conflict topic config setting min.compaction.lag.ms (9223372036854775807) > "
            "max.compaction.lag.ms (5)",
        ),
        (
            {"remote.storage.enable": "true"},
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        ),
        (
            {"retention.ms": None, "flush.ms": None},
            "Null value not supported for topic configs: flush.ms,retention.ms",
        ),
        (
            {"leader.replication.throttled.replicas": "0:1,*"},
            "Invalid value [0:1, *] for configuration leader.replication.throttled.replicas: "
            "leader.replication.throttled.replicas must be the literal '*' or a list of replicas in the "
            "following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...",
        ),
    ],
)
def test_entries_are_refused_in_kafkas_words(entries: dict[str, str | None], message: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        check_topic_overrides(entries, DEFAULTS)
    assert refusal.value.code is ErrorCode.INVALID_CONFIG
    assert refusal.value.message == message


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"internal.segment.bytes": "100"},
        {"cleanup.policy": ""},
        {"leader.replication.throttled.replicas": "*"},
        {"follower.replication.throttled.replicas": "0:1,12:3"},
        {"retention.ms": "-1", "retention.bytes": "-1"},
    ],
)
def test_entries_that_kafka_takes_are_taken(entries: dict[str, str | None]) -> None:
    check_topic_overrides(entries, DEFAULTS)
