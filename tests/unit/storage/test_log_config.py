from __future__ import annotations

import pytest

from tidelog.errors import ConfigError
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME
from tidelog.records.compression import Codec
from tidelog.storage.log_config import MAX_INT64, LogConfig


def test_the_defaults_are_kafkas() -> None:
    config = LogConfig()
    assert config.segment_bytes == 1_073_741_824
    assert config.retention_ms == 604_800_000
    assert config.max_message_bytes == 1_048_588
    assert config.message_timestamp_after_max_ms == 3_600_000
    assert (config.delete, config.compact) == (True, False)
    assert config.target_codec is None
    assert config.timestamp_type == CREATE_TIME


def test_options_are_taken_by_kafkas_names_and_unknown_ones_passed_over() -> None:
    config = LogConfig.from_options(
        {
            "segment.bytes": 1_048_576,
            "cleanup.policy": ["compact", "delete"],
            "compression.type": "zstd",
            "compression.zstd.level": 7,
            "message.timestamp.type": "LogAppendTime",
            "preallocate": True,
            "min.cleanable.dirty.ratio": 0.1,
            "remote.storage.enable": False,
            "leader.replication.throttled.replicas": [],
            "retention.ms": None,
        }
    )
    assert config.segment_bytes == 1_048_576
    assert config.compact
    assert config.delete
    assert config.target_codec is Codec.ZSTD
    assert config.compression_level(Codec.ZSTD) == 7
    assert config.compression_level(Codec.SNAPPY) is None
    assert config.timestamp_type == LOG_APPEND_TIME
    assert config.preallocate
    assert config.retention_ms == 604_800_000


def test_a_policy_may_be_written_with_commas() -> None:
    assert LogConfig.from_options({"cleanup.policy": "compact, delete"}).cleanup_policy == (
        "compact",
        "delete",
    )


def test_uncompressed_is_a_codec_and_producer_is_none() -> None:
    assert LogConfig(compression_type="uncompressed").target_codec is Codec.NONE
    assert LogConfig(compression_type="producer").target_codec is None


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [
        ("compression_type", "brotli", r"compression\.type=brotli"),
        ("message_timestamp_type", "Never", r"message\.timestamp\.type=Never"),
    ],
)
def test_values_that_mean_nothing_are_refused_by_name(option: str, value: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        LogConfig(**{option: value})  # type: ignore[arg-type]


def test_compacted_topics_roll_by_the_smaller_of_age_and_lag() -> None:
    assert LogConfig(segment_ms=500, max_compaction_lag_ms=100).max_segment_ms == 500
    compact = ("compact",)
    assert LogConfig(cleanup_policy=compact, segment_ms=500, max_compaction_lag_ms=100).max_segment_ms == 100
    assert (
        LogConfig(cleanup_policy=compact, segment_ms=500, max_compaction_lag_ms=MAX_INT64).max_segment_ms
        == 500
    )


def test_the_jitter_lies_below_its_bound() -> None:
    assert LogConfig().random_segment_jitter_ms() == 0
    jitters = {LogConfig(segment_jitter_ms=5).random_segment_jitter_ms() for _ in range(200)}
    assert jitters <= set(range(5))
    assert len(jitters) > 1
    assert LogConfig(segment_jitter_ms=100, segment_ms=1).random_segment_jitter_ms() == 0
