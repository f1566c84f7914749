"""The names that every room uses for the same things.

Topic ids, cluster ids and directory ids are Kafka's 16-byte UUIDs. They are kept as plain ``bytes``
(they are dictionary keys on the hot path) and shown to people the way Kafka shows them: 22
characters of URL-safe base64 without padding.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from typing import NamedTuple, NewType

Uuid = NewType("Uuid", bytes)

ZERO_UUID = Uuid(bytes(16))
RESERVED_UUIDS = frozenset({ZERO_UUID, Uuid(bytes(15) + b"\x01")})
"""Ids that nothing has but Kafka's own things."""

CONSUMER_OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTION_STATE_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC})

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
NO_TIMESTAMP = -1
NO_OFFSET = -1


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as Kafka's directory name, ``orders-3``.

    Args:
        topic: The name of the topic.
        partition: The number of the partition.

    Example:
        consumer.assign([TopicPartition("orders", 0)])
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def listed(partitions: Sequence[TopicPartition], most: int = 5) -> str:
    """Their number and the first of them, for one line in a log: ``12 partitions (a-0, a-1 and 10 more)``."""
    named = ", ".join(map(str, partitions[:most]))
    more = f" and {len(partitions) - most} more" if len(partitions) > most else ""
    return f"{len(partitions)} partition{'' if len(partitions) == 1 else 's'} ({named}{more})"


def random_uuid() -> Uuid:
    """A fresh version 4 UUID that Kafka's tools accept: not reserved, and its text has no leading dash."""
    while True:
        raw = bytearray(os.urandom(16))
        raw[6] = (raw[6] & 0x0F) | 0x40
        raw[8] = (raw[8] & 0x3F) | 0x80
        value = Uuid(bytes(raw))
        if value not in RESERVED_UUIDS and not uuid_to_text(value).startswith("-"):
            return value


def uuid_to_text(value: Uuid) -> str:
    """Kafka's text form of a UUID."""
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> Uuid:
    """The inverse of :func:`uuid_to_text`; raises ``ValueError`` on anything but 16 encoded bytes."""
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a Kafka UUID") from error
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a Kafka UUID: it holds {len(raw)} bytes, not 16")
    return Uuid(raw)
