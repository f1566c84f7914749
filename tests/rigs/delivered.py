"""What every delivered message of librdkafka has, while its types leave it open."""

from __future__ import annotations

from typing import cast

from confluent_kafka import Message

Headers = list[tuple[str, bytes | None]]


def place_of(message: Message) -> tuple[str, int]:
    topic = message.topic()
    assert topic is not None
    return topic, partition_of(message)


def partition_of(message: Message) -> int:
    partition = message.partition()
    assert partition is not None
    return partition


def offset_of(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset


def key_of(message: Message) -> bytes:
    key = message.key()
    assert key is not None
    return key


def headers_of(message: Message) -> Headers | None:
    return cast("Headers | None", message.headers())


def value_of(message: Message) -> bytes:
    value = message.value()
    assert value is not None
    return value
