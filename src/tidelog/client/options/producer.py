"""The options of producers."""

from __future__ import annotations

from tidelog.client.options.common import (
    CLIENT,
    METRICS,
    NETWORK,
    NO_LIMIT,
    connections_max_idle_ms,
    not_empty,
)
from tidelog.client.options.security import PROTOCOL, SASL, TLS
from tidelog.options import Option, at_least, between, between_or, distinct_items, one_of, option

_SENDING = (
    option(
        "acks",
        "string",
        "all",
        "Who must have a batch before it counts as sent: `all` (or `-1`) replicas in sync, the leader "
        "alone (`1`), or "
        "nobody (`0`: no answer is waited for, offsets are not known).",
        one_of("all", "-1", "0", "1"),
        importance="high",
    ),
    option(
        "enable.idempotence",
        "boolean",
        True,
        "Whether brokers drop what a retry sends twice, and keep the order of batches under way. Needs "
        "`acks=all`, `retries` above 0 and at most five requests in flight. Where it is not set itself, "
        "other `acks` or `retries=0` switch it off.",
        importance="low",
    ),
    option(
        "delivery.timeout.ms",
        "int",
        120_000,
        "How long from `send` to success or failure, waiting in the buffer and retries included. At least "
        "`linger.ms` plus `request.timeout.ms`.",
        at_least(0),
    ),
    option(
        "retries",
        "int",
        NO_LIMIT,
        "How often a batch may be sent again after errors that pass; `delivery.timeout.ms` is the better "
        "limit.",
        at_least(0),
        importance="high",
    ),
    option(
        "max.in.flight.requests.per.connection",
        "int",
        5,
        "How many requests a broker may owe answers to. More than one without idempotence can change the "
        "order of "
        "records when a batch is sent again.",
        at_least(1),
        importance="low",
    ),
    option(
        "max.request.size",
        "int",
        1_048_576,
        "The largest request, and so the largest record before compression. Brokers have limits of their own "
        "(`message.max.bytes`).",
        at_least(0),
    ),
    option(
        "max.block.ms",
        "long",
        60_000,
        "How long `send` may wait for metadata or for room in the buffer, and transactional calls for "
        "their answer.",
        at_least(0),
    ),
)

_BATCHING = (
    option(
        "batch.size",
        "int",
        16_384,
        "A batch of one partition is sent when it has so many bytes; larger batches compress better. 0: no "
        "batching.",
        at_least(0),
    ),
    option(
        "linger.ms",
        "long",
        5,
        "How long a batch that is not full waits for more records.",
        at_least(0),
    ),
    option(
        "buffer.memory",
        "long",
        32 * 1024 * 1024,
        "How many bytes of records may wait to be sent; beyond that `send` waits (`max.block.ms`).",
        at_least(0),
        importance="high",
    ),
    option(
        "compression.type",
        "string",
        "none",
        "What batches are compressed with. zstd and lz4 cost little; gzip is for old consumers.",
        one_of("none", "gzip", "snappy", "lz4", "zstd"),
        importance="high",
    ),
    option("compression.gzip.level", "int", -1, "Level for gzip; -1: its default.", between_or(1, 9, -1)),
    option("compression.lz4.level", "int", 9, "Level for lz4.", between(1, 17)),
    option("compression.zstd.level", "int", 3, "Level for zstd.", between(-131_072, 22)),
)

_RECORDS = (
    option(
        "key.serializer",
        "class",
        None,
        "Turns keys into bytes: `bytes`, `str`, `json`, `msgpack`, a function or an object with "
        "`serialize`. Not "
        "set: keys are bytes.",
        importance="high",
    ),
    option(
        "value.serializer",
        "class",
        None,
        "Turns values into bytes, as `key.serializer` does for keys.",
        importance="high",
    ),
    option(
        "partitioner.class",
        "class",
        None,
        "A function or object that chooses partitions, by the original and the serialized key and value. Not "
        "set: by the key's hash (murmur2, as Java does), records without a key stick to one partition per "
        "batch.",
    ),
    option(
        "partitioner.ignore.keys",
        "boolean",
        False,
        "Whether records with a key are spread like those without.",
    ),
    option(
        "partitioner.adaptive.partitioning.enable",
        "boolean",
        True,
        "Whether faster brokers get more of the records without a key.",
        importance="low",
    ),
    option(
        "partitioner.availability.timeout.ms",
        "long",
        0,
        "Partitions whose broker has not taken a batch for so long get no records without a key; 0: all do.",
        at_least(0),
        importance="low",
    ),
    option(
        "interceptor.classes",
        "list",
        (),
        "Objects that see each record before it is sent and each acknowledgement.",
        distinct_items(),
        importance="low",
    ),
)

_TRANSACTIONS = (
    option(
        "transactional.id",
        "string",
        None,
        "Makes the producer transactional under this name. A second producer of the same name fences the "
        "first one off.",
        not_empty(),
        importance="low",
    ),
    option(
        "transaction.timeout.ms",
        "int",
        60_000,
        "A transaction that is open for longer is aborted by its coordinator.",
        importance="low",
    ),
)

_METADATA = (
    option(
        "metadata.max.idle.ms",
        "long",
        300_000,
        "Topics that nothing is sent to for so long are forgotten.",
        at_least(5000),
        importance="low",
    ),
)

SUBJECTS: dict[str, tuple[Option, ...]] = {
    "Client": CLIENT,
    "Sending": _SENDING,
    "Batches": _BATCHING,
    "Records": _RECORDS,
    "Transactions": _TRANSACTIONS,
    "Metrics": METRICS,
    "Network": (*NETWORK, *_METADATA, connections_max_idle_ms(540_000)),
    "Security": (*PROTOCOL, *TLS, *SASL),
}
