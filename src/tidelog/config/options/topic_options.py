"""The table of every topic option of Kafka 4, and the broker options that each takes its default from.

Invariant: a topic option that has synonyms has the type that its first synonym has, and its own default
equals what a broker without configuration derives for it; a test compares the two tables.

``resolve`` is the one place that knows how broker options become topic defaults: the first synonym with a
value wins, and hours or minutes become milliseconds on the way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from tidelog.config.options.log_options import (
    CLEANUP_POLICIES,
    COMPRESSION_TYPES,
    MIN_SEGMENT_BYTES,
    TIMESTAMP_TYPES,
)
from tidelog.errors import ErrorCode, KafkaError
from tidelog.options import (
    MAX_LONG,
    BadValueError,
    Check,
    ConfigDef,
    Option,
    at_least,
    between,
    between_or,
    distinct_items,
    grouped,
    invalid,
    one_of,
    option,
)

_REPLICA_PAIRS = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
_PAIR = re.compile(r"[0-9]+:[0-9]+")


def _refuse_replica_pairs(name: str, value: object) -> None:
    if value is None or value == ("*",):
        return
    assert isinstance(value, tuple)
    if not all(_PAIR.fullmatch(pair) for pair in value):
        form = f"the literal '*' or a list of replicas in the following format: {_REPLICA_PAIRS}"
        raise invalid(name, value, f"{name} must be {form}")


_throttled_replicas = Check("* or a list of PARTITION:BROKER", _refuse_replica_pairs)

_TABLE: tuple[Option, ...] = (
    option(
        "cleanup.policy",
        "list",
        ("delete",),
        "What happens to old records: delete drops segments past their retention, compact keeps the last "
        "record of each key; both may be given, and with neither nothing is removed.",
        distinct_items(of=CLEANUP_POLICIES),
    ),
    option(
        "compression.type",
        "string",
        "producer",
        "The codec that batches are stored with: producer keeps what the producer chose.",
        one_of(*COMPRESSION_TYPES),
    ),
    option(
        "compression.gzip.level",
        "int",
        -1,
        "The level where batches are recompressed with gzip; -1 for zlib's own default.",
        between_or(1, 9, -1),
    ),
    option(
        "compression.lz4.level",
        "int",
        9,
        "The level where batches are recompressed with lz4.",
        between(1, 17),
    ),
    option(
        "compression.zstd.level",
        "int",
        3,
        "The level where batches are recompressed with zstd.",
        between(-131072, 22),
    ),
    option(
        "delete.retention.ms",
        "long",
        86400000,
        "How long tombstones and transaction markers outlive compaction, so that a reader who started "
        "from the beginning still sees them.",
        at_least(0),
    ),
    option(
        "file.delete.delay.ms",
        "long",
        60000,
        "How long a deleted segment's files stay on disk under the suffix .deleted.",
        at_least(0),
    ),
    option(
        "flush.messages",
        "long",
        MAX_LONG,
        "The log is flushed to disk once this many records have come in since the last flush; 1 for every "
        "record.",
        at_least(1),
    ),
    option(
        "flush.ms",
        "long",
        MAX_LONG,
        "How long a record stays unflushed at most; the broker looks every log.flush.scheduler.interval.ms.",
        at_least(0),
    ),
    option(
        "follower.replication.throttled.replicas",
        "list",
        (),
        "Replicas whose fetching the broker's follower throttle slows, as PARTITION:BROKER pairs, or * "
        "for all.",
        _throttled_replicas,
    ),
    option(
        "index.interval.bytes",
        "int",
        4096,
        "How many bytes of log lie between two index entries.",
        at_least(0),
    ),
    option(
        "internal.segment.bytes",
        "int",
        None,
        "A segment size below the bound of segment.bytes, which it overrides; for tests.",
        internal=True,
    ),
    option(
        "leader.replication.throttled.replicas",
        "list",
        (),
        "Replicas whose fetching the broker's leader throttle slows, as PARTITION:BROKER pairs, or * for "
        "all.",
        _throttled_replicas,
    ),
    option(
        "local.retention.bytes",
        "long",
        -2,
        "How large a log may grow on local disk where tiered storage is on; -2 means retention.bytes.",
        at_least(-2),
    ),
    option(
        "local.retention.ms",
        "long",
        -2,
        "How long segments stay on local disk where tiered storage is on; -2 means retention.ms.",
        at_least(-2),
    ),
    option(
        "max.compaction.lag.ms",
        "long",
        MAX_LONG,
        "A log with uncompacted records older than this is compacted whatever its dirty ratio.",
        at_least(1),
    ),
    option(
        "max.message.bytes",
        "int",
        1048588,
        "The largest record batch that is taken, as it arrives (compressed).",
        at_least(0),
    ),
    option(
        "message.timestamp.after.max.ms",
        "long",
        3600000,
        "A record with CreateTime that is ahead of the broker's clock by more than this is refused.",
        at_least(0),
    ),
    option(
        "message.timestamp.before.max.ms",
        "long",
        MAX_LONG,
        "A record with CreateTime that is older than the broker's clock by more than this is refused.",
        at_least(0),
    ),
    option(
        "message.timestamp.type",
        "string",
        "CreateTime",
        "Whether records keep the producer's time or get the broker's at append.",
        one_of(*TIMESTAMP_TYPES),
    ),
    option(
        "min.cleanable.dirty.ratio",
        "double",
        0.5,
        "The share of the log that must be uncompacted before it is compacted again.",
        between(0, 1),
    ),
    option(
        "min.compaction.lag.ms",
        "long",
        0,
        "Records younger than this are not compacted.",
        at_least(0),
    ),
    option(
        "min.insync.replicas",
        "int",
        1,
        "With acks=all, how many in-sync replicas, the leader included, must be there for a write to be "
        "taken.",
        at_least(1),
    ),
    option(
        "preallocate",
        "boolean",
        False,
        "Whether a new segment file takes its full size on disk at once.",
    ),
    option(
        "remote.log.copy.disable",
        "boolean",
        False,
        "Whether tiered data becomes read-only and no more segments are copied out.",
    ),
    option(
        "remote.log.delete.on.disable",
        "boolean",
        False,
        "Whether tiered data is deleted when remote.storage.enable is turned off.",
    ),
    option(
        "remote.storage.enable",
        "boolean",
        False,
        "Whether segments are copied to tiered storage. Tidelog has none, so true is refused, as a Kafka "
        "broker without it refuses.",
    ),
    option(
        "retention.bytes",
        "long",
        -1,
        "How large one partition's log may grow before its oldest segments go; -1 for no limit.",
    ),
    option(
        "retention.ms",
        "long",
        604800000,
        "How long records are kept; -1 for ever.",
        at_least(-1),
    ),
    option(
        "segment.bytes",
        "int",
        1073741824,
        "The size at which the log starts a new segment file.",
        at_least(MIN_SEGMENT_BYTES),
    ),
    option(
        "segment.index.bytes",
        "int",
        10485760,
        "The largest size of an offset or time index; a full index starts a new segment.",
        at_least(4),
    ),
    option(
        "segment.jitter.ms",
        "long",
        0,
        "Up to this much is taken off a segment's age limit at random, so that logs do not all roll at once.",
        at_least(0),
    ),
    option(
        "segment.ms",
        "long",
        604800000,
        "The age at which the log starts a new segment even if the last one is not full.",
        at_least(1),
    ),
    option(
        "unclean.leader.election.enable",
        "boolean",
        False,
        "Whether a replica that is not in sync may lead when no other is left, at the price of lost records.",
    ),
)

_GROUPS: dict[str, str] = {
    "Retention": "cleanup.policy retention.ms retention.bytes file.delete.delay.ms",
    "Compaction": "min.cleanable.dirty.ratio min.compaction.lag.ms max.compaction.lag.ms delete.retention.ms",
    "Records": "max.message.bytes compression.type compression.gzip.level compression.lz4.level "
    "compression.zstd.level message.timestamp.type message.timestamp.before.max.ms "
    "message.timestamp.after.max.ms",
    "Replication": "min.insync.replicas unclean.leader.election.enable leader.replication.throttled.replicas "
    "follower.replication.throttled.replicas",
    "Segments": "segment.bytes segment.ms segment.jitter.ms segment.index.bytes index.interval.bytes "
    "preallocate internal.segment.bytes",
    "Flushing": "flush.messages flush.ms",
    "Tiered storage": "remote.storage.enable local.retention.ms local.retention.bytes "
    "remote.log.copy.disable remote.log.delete.on.disable",
}
"""What forms show together, and in which order; Kafka's own table has no groups."""

_BY_NAME = {each.name: each for each in _TABLE}
TOPIC_SUBJECTS: dict[str, tuple[Option, ...]] = {
    group: tuple(_BY_NAME[name] for name in names.split()) for group, names in _GROUPS.items()
}
_PLACED = {each.name: each for each in grouped(TOPIC_SUBJECTS)}

TOPIC_OPTIONS = ConfigDef(_PLACED[each.name] for each in _TABLE)


def _same(value: object) -> object:
    return value


def _from_minutes(value: object) -> object:
    return value * 60_000 if isinstance(value, int) else value


def _from_hours(value: object) -> object:
    return value * 3_600_000 if isinstance(value, int) else value


class Synonym(NamedTuple):
    """A broker option that gives a topic option its default, and how its unit becomes the topic's."""

    name: str
    convert: Callable[[object], object] = _same


def _one(name: str) -> tuple[Synonym, ...]:
    return (Synonym(name),)


SYNONYMS: dict[str, tuple[Synonym, ...]] = {
    "cleanup.policy": _one("log.cleanup.policy"),
    "compression.gzip.level": _one("compression.gzip.level"),
    "compression.lz4.level": _one("compression.lz4.level"),
    "compression.type": _one("compression.type"),
    "compression.zstd.level": _one("compression.zstd.level"),
    "delete.retention.ms": _one("log.cleaner.delete.retention.ms"),
    "file.delete.delay.ms": _one("log.segment.delete.delay.ms"),
    "flush.messages": _one("log.flush.interval.messages"),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    "index.interval.bytes": _one("log.index.interval.bytes"),
    "local.retention.bytes": _one("log.local.retention.bytes"),
    "local.retention.ms": _one("log.local.retention.ms"),
    "max.compaction.lag.ms": _one("log.cleaner.max.compaction.lag.ms"),
    "max.message.bytes": _one("message.max.bytes"),
    "message.timestamp.after.max.ms": _one("log.message.timestamp.after.max.ms"),
    "message.timestamp.before.max.ms": _one("log.message.timestamp.before.max.ms"),
    "message.timestamp.type": _one("log.message.timestamp.type"),
    "min.cleanable.dirty.ratio": _one("log.cleaner.min.cleanable.ratio"),
    "min.compaction.lag.ms": _one("log.cleaner.min.compaction.lag.ms"),
    "min.insync.replicas": _one("min.insync.replicas"),
    "preallocate": _one("log.preallocate"),
    "retention.bytes": _one("log.retention.bytes"),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", _from_minutes),
        Synonym("log.retention.hours", _from_hours),
    ),
    "segment.bytes": _one("log.segment.bytes"),
    "segment.index.bytes": _one("log.index.size.max.bytes"),
    "segment.jitter.ms": (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _from_hours)),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", _from_hours)),
    "unclean.leader.election.enable": _one("unclean.leader.election.enable"),
}


def resolve(broker_values: Mapping[str, object]) -> dict[str, object]:
    """Every topic option's default on a broker with these typed values."""
    defaults = TOPIC_OPTIONS.defaults()
    for name, synonyms in SYNONYMS.items():
        for synonym in synonyms:
            value = broker_values.get(synonym.name)
            if value is not None:
                defaults[name] = synonym.convert(value)
                break
    retention_ms = defaults["retention.ms"]
    if isinstance(retention_ms, int) and retention_ms < 0:
        defaults["retention.ms"] = -1
    return defaults


class TopicConfig(Mapping[str, object]):
    """One topic's effective options: its own overrides over the broker's defaults, typed.

    ``overrides`` keeps the topic's own entries as text, as the store and DescribeConfigs have them.
    """

    __slots__ = ("_values", "overrides")

    def __init__(self, defaults: Mapping[str, object], overrides: Mapping[str, str] | None = None) -> None:
        self.overrides: dict[str, str] = dict(overrides or {})
        self._values = {**defaults, **TOPIC_OPTIONS.parse_known(self.overrides)}

    def __getitem__(self, name: str) -> object:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def check_topic_overrides(
    overrides: Mapping[str, str | None],
    defaults: Mapping[str, object],
) -> None:
    """Refuse a topic's overrides as Kafka's controller does: INVALID_CONFIG with its message.

    ``defaults`` are the broker's, against which rules over several options are checked.
    """
    for name in overrides:
        if name not in TOPIC_OPTIONS:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
    nulls = sorted(name for name, value in overrides.items() if value is None)
    if nulls:
        listed = ",".join(nulls)
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {listed}")
    values = dict(defaults)
    for name, text in overrides.items():
        try:
            values[name] = TOPIC_OPTIONS[name].parse(text)
        except BadValueError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    _check_together(values)


def _check_together(values: Mapping[str, object]) -> None:
    least, most = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    assert isinstance(least, int)
    assert isinstance(most, int)
    if least > most:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({least}) > max.compaction.lag.ms ({most})",
        )
    if values["remote.storage.enable"]:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        )
