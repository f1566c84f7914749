"""The clients that the suite runs, and what each cannot do; source of docs/reference/compatibility.md."""

from __future__ import annotations

import sys

from foreign import toolchain
from tests.compat.driver import Client

FEATURES = {
    "produce": "every codec, acks 0, 1 and all, with and without idempotence; offsets answered",
    "consume": "what it wrote, from the first offset, from one in the middle, and from the end (long poll)",
    "nulls": "null and empty keys and values",
    "headers": "headers, in order",
    "odd_headers": "headers with null values and repeated names",
    "large": "a record of 1 MB, and the refusal of one beyond `max.message.bytes`",
    "timestamps": "CreateTime kept, LogAppendTime set by the broker",
    "position": "earliest, latest, first offset at or after a timestamp",
    "max_timestamp": "offset of the largest timestamp",
    "stream": "thousands of idempotent records over several partitions, back in order",
    "out_of_range": "an offset beyond the end is refused",
    "topics": "create, create again, describe, list, delete, unknown topic",
    "topic_id": "the topic id, the same from every call",
    "validate_only": "validation without creation",
    "create_partitions": "more partitions, and the refusal of fewer",
    "describe_configs": "topic and broker configs with sources and synonyms",
    "alter_configs": "set, append, subtract, delete; the refusal of bad values",
    "replace_configs": "the older AlterConfigs, which replaces a topic's configs",
    "broker_configs": "a dynamic broker config, set and deleted",
    "delete_records": "records deleted before an offset; the log starts there",
    "cluster": "brokers and controller",
    "features": "features in ApiVersions",
    "describe_log_dirs": "directories, sizes per partition",
    "describe_producers": "the state of an idempotent producer",
    "elect_leaders": "a preferred election that is not needed",
    "move_log_dir": "a partition moved to the directory where it is, and to one that is not there",
    "epoch_end": "end offset of a leader epoch",
    "groups": "a group: partitions shared, offsets committed, members leave or are killed, others go on",
    "consumer_protocol": "the same with `group.protocol=consumer` (KIP-848)",
}

NO_CALL = "the client has no such call"
NOT_OFFERED = "the client knows the classic protocol only"

CLIENTS = [
    Client(
        "java-4",
        lambda: toolchain.java_driver("client-4"),
        {"epoch_end": NO_CALL, "replace_configs": "removed from its Admin in 4.0"},
    ),
    Client(
        "java-3.9",
        lambda: toolchain.java_driver("kafka-3.9"),
        {"epoch_end": NO_CALL, "replace_configs": "one driver source for both Java clients"},
    ),
    Client("franz-go", lambda: toolchain.go_driver("franz")),
    Client(
        "sarama",
        lambda: toolchain.go_driver("sarama"),
        {
            "max_timestamp": "speaks too old a ListOffsets",
            "topic_id": NO_CALL,
            "features": NO_CALL,
            "describe_producers": NO_CALL,
            "move_log_dir": NO_CALL,
            "epoch_end": NO_CALL,
            "consumer_protocol": NOT_OFFERED,
        },
    ),
    Client(
        "kafkajs",
        toolchain.kafkajs_driver,
        {
            "odd_headers": "its headers are a map without nulls",
            "max_timestamp": NO_CALL,
            "topic_id": NO_CALL,
            "alter_configs": "knows the older AlterConfigs only",
            "broker_configs": "knows the older AlterConfigs only",
            "features": NO_CALL,
            "describe_log_dirs": NO_CALL,
            "describe_producers": NO_CALL,
            "elect_leaders": NO_CALL,
            "move_log_dir": NO_CALL,
            "epoch_end": NO_CALL,
            "consumer_protocol": NOT_OFFERED,
        },
    ),
    Client(
        "librdkafka",
        lambda: [sys.executable, str(toolchain.HERE / "drivers" / "librdkafka.py")],
        {
            "features": NO_CALL,
            "describe_log_dirs": NO_CALL,
            "describe_producers": NO_CALL,
            "move_log_dir": NO_CALL,
            "epoch_end": NO_CALL,
        },
    ),
]
