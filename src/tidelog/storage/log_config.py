"""The topic options that one partition's log honours, typed and frozen.

Owns nothing but values: bounds and parsing belong to the option tables in ``metadata``, which hand over a
mapping with Kafka's topic-level names (``segment.bytes`` …). A log reads its config on every append, so
derived values are computed once, here. Built by ``replication`` and ``storage/directories/log_dirs``.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, cast

from tidelog.errors import ConfigError
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME
from tidelog.records.compression import Codec

MAX_INT64: Final = 0x7FFF_FFFF_FFFF_FFFF
_WEEK_MS: Final = 7 * 24 * 60 * 60 * 1000
_DAY_MS: Final = 24 * 60 * 60 * 1000
_HOUR_MS: Final = 60 * 60 * 1000


@dataclass(frozen=True, slots=True)
class LogConfig:
    """What a topic says about its logs; the defaults are Kafka's."""

    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = _WEEK_MS
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * 1024 * 1024
    index_interval_bytes: int = 4096
    flush_messages: int = MAX_INT64
    flush_ms: int = MAX_INT64
    retention_bytes: int = -1
    retention_ms: int = _WEEK_MS
    max_message_bytes: int = 1024 * 1024 + 12
    cleanup_policy: tuple[str, ...] = ("delete",)
    delete_retention_ms: int = _DAY_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_INT64
    min_cleanable_dirty_ratio: float = 0.5
    file_delete_delay_ms: int = 60_000
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    preallocate: bool = False
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = MAX_INT64
    message_timestamp_after_max_ms: int = _HOUR_MS
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False

    compact: bool = field(init=False)
    delete: bool = field(init=False)
    timestamp_type: int = field(init=False)
    target_codec: Codec | None = field(init=False)
    max_segment_ms: int = field(init=False)

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "compact", "compact" in self.cleanup_policy)
        put(self, "delete", "delete" in self.cleanup_policy)
        put(self, "timestamp_type", self._timestamp_type())
        put(self, "target_codec", self._target_codec())
        rolls_for_compaction = self.compact and self.max_compaction_lag_ms > 0
        limit = min(self.max_compaction_lag_ms, self.segment_ms) if rolls_for_compaction else self.segment_ms
        put(self, "max_segment_ms", limit)

    def _timestamp_type(self) -> int:
        if self.message_timestamp_type == "CreateTime":
            return CREATE_TIME
        if self.message_timestamp_type == "LogAppendTime":
            return LOG_APPEND_TIME
        raise ConfigError(
            f"message.timestamp.type={self.message_timestamp_type} is not known; "
            "use CreateTime or LogAppendTime"
        )

    def _target_codec(self) -> Codec | None:
        if self.compression_type == "producer":
            return None
        try:
            return Codec.from_label(self.compression_type)
        except ValueError as error:
            raise ConfigError(f"compression.type={self.compression_type} is not known: {error}") from error

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> LogConfig:
        """The config that ``options`` describe; names that no log honours are passed over."""
        values: dict[str, object] = {}
        for name, value in options.items():
            attribute = _ATTRIBUTES.get(name)
            if attribute is None or value is None:
                continue
            values[attribute] = _policy(value) if attribute == "cleanup_policy" else value
        return cls(**cast("dict[str, int]", values))  # type: ignore[arg-type]

    def compression_level(self, codec: Codec) -> int | None:
        """The level at which the broker compresses with ``codec``; None where the codec has none."""
        return {
            Codec.GZIP: self.compression_gzip_level,
            Codec.LZ4: self.compression_lz4_level,
            Codec.ZSTD: self.compression_zstd_level,
        }.get(codec)

    def random_segment_jitter_ms(self) -> int:
        """How much earlier than ``segment.ms`` one segment rolls, so that not all roll at once."""
        if self.segment_jitter_ms == 0:
            return 0
        return random.randrange(min(self.segment_jitter_ms, self.segment_ms))


def _policy(value: object) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else cast("list[str]", value)
    return tuple(part.strip() for part in parts if part.strip())


_ATTRIBUTES: Final[dict[str, str]] = {
    "segment.bytes": "segment_bytes",
    "segment.ms": "segment_ms",
    "segment.jitter.ms": "segment_jitter_ms",
    "segment.index.bytes": "segment_index_bytes",
    "index.interval.bytes": "index_interval_bytes",
    "flush.messages": "flush_messages",
    "flush.ms": "flush_ms",
    "retention.bytes": "retention_bytes",
    "retention.ms": "retention_ms",
    "max.message.bytes": "max_message_bytes",
    "cleanup.policy": "cleanup_policy",
    "delete.retention.ms": "delete_retention_ms",
    "min.compaction.lag.ms": "min_compaction_lag_ms",
    "max.compaction.lag.ms": "max_compaction_lag_ms",
    "min.cleanable.dirty.ratio": "min_cleanable_dirty_ratio",
    "file.delete.delay.ms": "file_delete_delay_ms",
    "compression.type": "compression_type",
    "compression.gzip.level": "compression_gzip_level",
    "compression.lz4.level": "compression_lz4_level",
    "compression.zstd.level": "compression_zstd_level",
    "preallocate": "preallocate",
    "message.timestamp.type": "message_timestamp_type",
    "message.timestamp.before.max.ms": "message_timestamp_before_max_ms",
    "message.timestamp.after.max.ms": "message_timestamp_after_max_ms",
    "min.insync.replicas": "min_insync_replicas",
    "unclean.leader.election.enable": "unclean_leader_election_enable",
}
