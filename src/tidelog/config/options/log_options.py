"""Broker options about log directories, segments, flushing, retention, compaction and record checks.

Part of the table in ``broker_options``; names, types, defaults and bounds are Kafka 4's. Most of them are
the defaults of topic options: ``topic_options`` says which.
"""

from __future__ import annotations

from tidelog.options import (
    MAX_DOUBLE,
    MAX_LONG,
    Option,
    at_least,
    between,
    between_or,
    distinct_items,
    one_of,
    option,
)

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP_POLICIES = ("compact", "delete")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
MIN_SEGMENT_BYTES = 1024 * 1024
_KAFKA_3_MIN_SEGMENT_BYTES = 14


def raised(name: str, stored: str) -> str:
    """A stored value as it can be used: at least at the bound that Kafka 4 has where Kafka 3.9 took less."""
    if name not in ("segment.bytes", "log.segment.bytes") or not stored.strip().isdecimal():
        return stored
    too_small = _KAFKA_3_MIN_SEGMENT_BYTES <= int(stored) < MIN_SEGMENT_BYTES
    return str(MIN_SEGMENT_BYTES) if too_small else stored


DIRECTORY_OPTIONS: tuple[Option, ...] = (
    option(
        "log.dirs",
        "list",
        None,
        "Directories that hold the logs, each best on a disk of its own; log.dir is used where this is "
        "not set.",
        distinct_items(empty_ok=False, null_ok=True),
        importance="high",
    ),
    option(
        "log.dir",
        "list",
        ("/tmp/kafka-logs",),
        "The directory that holds the logs where log.dirs is not set.",
        distinct_items(empty_ok=False),
        importance="high",
    ),
    option(
        "metadata.log.dir",
        "string",
        None,
        "Where Kafka in KRaft mode had its metadata log, if not in one of log.dirs: read once, when its "
        "directories are taken over.",
        importance="high",
    ),
    option(
        "tidelog.adopt.without.metadata",
        "boolean",
        False,
        "Whether the directories of a Kafka in KRaft mode are taken over even if its metadata log cannot be "
        "read. Topics then have no configs of their own, and their records are deleted by the broker's "
        "defaults: set those first.",
        internal=True,
    ),
    option(
        "num.recovery.threads.per.data.dir",
        "int",
        2,
        "How many logs of one directory are flushed at the same time at shutdown.",
        at_least(1),
        importance="high",
        dynamic="cluster-wide",
    ),
)

SEGMENT_OPTIONS: tuple[Option, ...] = (
    option(
        "log.segment.bytes",
        "int",
        1073741824,
        "The size at which a log starts a new segment file.",
        at_least(MIN_SEGMENT_BYTES),
        importance="high",
        dynamic="cluster-wide",
    ),
    option(
        "log.roll.ms",
        "long",
        None,
        "The age at which a log starts a new segment even if the last one is not full; log.roll.hours is "
        "used where this is not set.",
        importance="high",
        dynamic="cluster-wide",
    ),
    option(
        "log.roll.hours",
        "int",
        168,
        "log.roll.ms in hours.",
        at_least(1),
        importance="high",
    ),
    option(
        "log.roll.jitter.ms",
        "long",
        None,
        "Up to this much is taken off a segment's age limit at random, so that logs do not all roll at once; "
        "log.roll.jitter.hours is used where this is not set.",
        importance="high",
        dynamic="cluster-wide",
    ),
    option(
        "log.roll.jitter.hours",
        "int",
        0,
        "log.roll.jitter.ms in hours.",
        at_least(0),
        importance="high",
    ),
    option(
        "log.index.size.max.bytes",
        "int",
        10485760,
        "The largest size of an offset or time index; a full index starts a new segment.",
        at_least(4),
        dynamic="cluster-wide",
    ),
    option(
        "log.index.interval.bytes",
        "int",
        4096,
        "How many bytes of log lie between two index entries.",
        at_least(0),
        dynamic="cluster-wide",
    ),
    option(
        "log.preallocate",
        "boolean",
        False,
        "Whether a new segment file takes its full size on disk at once.",
        dynamic="cluster-wide",
    ),
    option(
        "log.segment.delete.delay.ms",
        "long",
        60000,
        "How long a deleted segment's files stay on disk under the suffix .deleted.",
        at_least(0),
        importance="high",
        dynamic="cluster-wide",
    ),
)

FLUSH_OPTIONS: tuple[Option, ...] = (
    option(
        "log.flush.interval.messages",
        "long",
        MAX_LONG,
        "A log is flushed to disk once this many records have come in since the last flush.",
        at_least(1),
        importance="high",
        dynamic="cluster-wide",
    ),
    option(
        "log.flush.interval.ms",
        "long",
        None,
        "How long a record stays unflushed at most; log.flush.scheduler.interval.ms is used where this is "
        "not set.",
        importance="high",
        dynamic="cluster-wide",
    ),
    option(
        "log.flush.scheduler.interval.ms",
        "long",
        MAX_LONG,
        "How often the broker looks for logs whose flush is due.",
        importance="high",
    ),
    option(
        "log.flush.offset.checkpoint.interval.ms",
        "int",
        60000,
        "How often recovery points are written to recovery-point-offset-checkpoint.",
        at_least(0),
        importance="high",
    ),
    option(
        "log.flush.start.offset.checkpoint.interval.ms",
        "int",
        60000,
        "How often log start offsets are written to log-start-offset-checkpoint.",
        at_least(0),
        importance="high",
    ),
    option(
        "replica.high.watermark.checkpoint.interval.ms",
        "long",
        5000,
        "How often high watermarks are written to replication-offset-checkpoint.",
        importance="high",
    ),
)

RETENTION_OPTIONS: tuple[Option, ...] = (
    option(
        "log.cleanup.policy",
        "list",
        ("delete",),
        "What happens to old records: delete drops segments past their retention, compact keeps the last "
        "record of each key; both may be given, and with neither nothing is removed.",
        distinct_items(of=CLEANUP_POLICIES),
        dynamic="cluster-wide",
    ),
    option(
        "log.retention.ms",
        "long",
        None,
        "How long records are kept, -1 for ever; log.retention.minutes, then log.retention.hours, are "
        "used where this is not set.",
        importance="high",
        dynamic="cluster-wide",
    ),
    option("log.retention.minutes", "int", None, "log.retention.ms in minutes.", importance="high"),
    option("log.retention.hours", "int", 168, "log.retention.ms in hours.", importance="high"),
    option(
        "log.retention.bytes",
        "long",
        -1,
        "How large one partition's log may grow before its oldest segments go; -1 for no limit.",
        importance="high",
        dynamic="cluster-wide",
    ),
    option(
        "log.retention.check.interval.ms",
        "long",
        300000,
        "How often the broker looks for segments past their retention.",
        at_least(1),
    ),
    option(
        "log.local.retention.ms",
        "long",
        -2,
        "How long segments stay on local disk where tiered storage is on; -2 means log.retention.ms.",
        at_least(-2),
        dynamic="cluster-wide",
    ),
    option(
        "log.local.retention.bytes",
        "long",
        -2,
        "How large a log may grow on local disk where tiered storage is on; -2 means log.retention.bytes.",
        at_least(-2),
        dynamic="cluster-wide",
    ),
)

CLEANER_OPTIONS: tuple[Option, ...] = (
    option(
        "log.cleaner.enable",
        "boolean",
        True,
        "Whether compacted topics are compacted at all. Kafka has deprecated turning it off.",
    ),
    option(
        "log.cleaner.io.max.bytes.per.second",
        "double",
        MAX_DOUBLE,
        "Compaction reads and writes at most this much a second on average.",
        dynamic="cluster-wide",
    ),
    option(
        "log.cleaner.dedupe.buffer.size",
        "long",
        134217728,
        "Memory for the table of keys of the log that is compacted; more than 1 MB.",
        dynamic="cluster-wide",
    ),
    option(
        "log.cleaner.io.buffer.size",
        "int",
        524288,
        "Memory for reading and writing while a log is compacted.",
        at_least(0),
        dynamic="cluster-wide",
    ),
    option(
        "log.cleaner.io.buffer.load.factor",
        "double",
        0.9,
        "How full the table of keys may get before the cleaner starts to rewrite.",
        dynamic="cluster-wide",
    ),
    option(
        "log.cleaner.backoff.ms",
        "long",
        15000,
        "How long the cleaner waits when no log needs it.",
        at_least(0),
        dynamic="cluster-wide",
    ),
    option(
        "log.cleaner.min.cleanable.ratio",
        "double",
        0.5,
        "The share of a log that must be uncompacted before it is compacted again.",
        between(0, 1),
        dynamic="cluster-wide",
    ),
    option(
        "log.cleaner.delete.retention.ms",
        "long",
        86400000,
        "How long tombstones and transaction markers outlive compaction, so that a reader who started "
        "from the beginning still sees them.",
        at_least(0),
        dynamic="cluster-wide",
    ),
    option(
        "log.cleaner.min.compaction.lag.ms",
        "long",
        0,
        "Records younger than this are not compacted.",
        at_least(0),
        dynamic="cluster-wide",
    ),
    option(
        "log.cleaner.max.compaction.lag.ms",
        "long",
        MAX_LONG,
        "A log with uncompacted records older than this is compacted whatever its dirty ratio.",
        at_least(1),
        dynamic="cluster-wide",
    ),
)

RECORD_OPTIONS: tuple[Option, ...] = (
    option(
        "message.max.bytes",
        "int",
        1048588,
        "The largest record batch that is taken, as it arrives (compressed).",
        at_least(0),
        importance="high",
        dynamic="cluster-wide",
    ),
    option(
        "tidelog.message.max.uncompressed.bytes",
        "long",
        134217728,
        "How many bytes the records of a batch may be when they are unpacked; a batch with more is refused "
        "with MESSAGE_TOO_LARGE, and producers that can split it.",
        at_least(1),
        importance="medium",
        internal=True,
    ),
    option(
        "tidelog.message.max.records",
        "int",
        4000000,
        "How many records a batch may have; one with more is refused with MESSAGE_TOO_LARGE, and producers "
        "that can split it.",
        at_least(1),
        importance="medium",
        internal=True,
    ),
    option(
        "compression.type",
        "string",
        "producer",
        "The codec that batches are stored with: producer keeps what the producer chose.",
        one_of(*COMPRESSION_TYPES),
        importance="high",
        dynamic="cluster-wide",
    ),
    option(
        "compression.gzip.level",
        "int",
        -1,
        "The level where batches are recompressed with gzip; -1 for zlib's own default.",
        between_or(1, 9, -1),
        dynamic="cluster-wide",
    ),
    option(
        "compression.lz4.level",
        "int",
        9,
        "The level where batches are recompressed with lz4.",
        between(1, 17),
        dynamic="cluster-wide",
    ),
    option(
        "compression.zstd.level",
        "int",
        3,
        "The level where batches are recompressed with zstd.",
        between(-131072, 22),
        dynamic="cluster-wide",
    ),
    option(
        "log.message.timestamp.type",
        "string",
        "CreateTime",
        "Whether records keep the producer's time or get the broker's at append.",
        one_of(*TIMESTAMP_TYPES),
        dynamic="cluster-wide",
    ),
    option(
        "log.message.timestamp.before.max.ms",
        "long",
        MAX_LONG,
        "A record with CreateTime that is older than the broker's clock by more than this is refused.",
        at_least(0),
        dynamic="cluster-wide",
    ),
    option(
        "log.message.timestamp.after.max.ms",
        "long",
        3600000,
        "A record with CreateTime that is ahead of the broker's clock by more than this is refused.",
        at_least(0),
        dynamic="cluster-wide",
    ),
)
