"""The broker options that log directories honour, typed and frozen.

Owns nothing but values; bounds and parsing belong to the option tables. Built by ``broker`` from a mapping
with Kafka's names, and again whenever a dynamic option changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from msgspec import Struct, field

from tidelog.records.batch_walk import DEFAULT_LIMITS, WalkLimits
from tidelog.storage.cleaner.cleaner_options import CleanerOptions
from tidelog.storage.log_config import MAX_INT64


class LogDirsOptions(Struct, frozen=True):
    """How often things are looked after; the defaults are Kafka's, which has no watch on its clock."""

    retention_check_interval_ms: int = 300_000
    flush_check_interval_ms: int = MAX_INT64
    recovery_point_interval_ms: int = 60_000
    log_start_interval_ms: int = 60_000
    high_watermark_interval_ms: int = 5_000
    producer_expiration_ms: int = 86_400_000
    producer_expiration_check_interval_ms: int = 600_000
    clock_check_interval_ms: int = 1_000
    delete_delay_ms: int = 60_000
    threads_per_dir: int = 2
    move_bytes_per_second: int = MAX_INT64
    message_max_uncompressed_bytes: int = DEFAULT_LIMITS.max_bytes
    message_max_records: int = DEFAULT_LIMITS.max_records
    cleaner: CleanerOptions = field(default_factory=CleanerOptions)

    @property
    def cleaner_interval_ms(self) -> int:
        """How often compacted logs are looked at."""
        return self.cleaner.backoff_ms

    @property
    def walk_limits(self) -> WalkLimits:
        """How much the records of one batch may unpack to."""
        return WalkLimits(self.message_max_uncompressed_bytes, self.message_max_records)

    @classmethod
    def from_options(cls, options: Mapping[str, object]) -> LogDirsOptions:
        """The options among ``options``, which have Kafka's names; other names are passed over."""
        found = {_NAMES[name]: value for name, value in options.items() if name in _NAMES}
        values = cast("dict[str, int]", {name: value for name, value in found.items() if value is not None})
        return cls(**values, cleaner=CleanerOptions.from_options(options))


_NAMES: Final[dict[str, str]] = {
    "log.retention.check.interval.ms": "retention_check_interval_ms",
    "log.flush.scheduler.interval.ms": "flush_check_interval_ms",
    "log.flush.offset.checkpoint.interval.ms": "recovery_point_interval_ms",
    "log.flush.start.offset.checkpoint.interval.ms": "log_start_interval_ms",
    "replica.high.watermark.checkpoint.interval.ms": "high_watermark_interval_ms",
    "producer.id.expiration.ms": "producer_expiration_ms",
    "producer.id.expiration.check.interval.ms": "producer_expiration_check_interval_ms",
    "log.segment.delete.delay.ms": "delete_delay_ms",
    "num.recovery.threads.per.data.dir": "threads_per_dir",
    "replica.alter.log.dirs.io.max.bytes.per.second": "move_bytes_per_second",
    "tidelog.message.max.uncompressed.bytes": "message_max_uncompressed_bytes",
    "tidelog.message.max.records": "message_max_records",
}
