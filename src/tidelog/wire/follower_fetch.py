"""Writing the FetchRequest of a follower by hand, versions 15 to 17: it goes out once for every few records.

Gives what the generic codec gives for such a request (no rack, nothing forgotten), as the tests
compare byte for byte. Used by ``broker/cluster/remote_leader``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from tidelog.wire.varint import uvarint

LOWEST, HIGHEST = 15, 17

_HEAD = struct.Struct(">iiibii")
_PARTITION = struct.Struct(">iiqiqiB")
# Forgotten topics, rack, one tagged field: the replica's id and the epoch of its broker.
_TAIL = struct.Struct(">BBBBBiqB")
NO_SESSION = (0, -1)
_READ_UNCOMMITTED = 0

FollowedPartition = tuple[int, int, int, int, int]
"""Index, leader epoch, offset, epoch of the last batch, start of the log."""


def encode_follower_fetch(
    limits: tuple[int, int, int],
    replica: tuple[int, int],
    topics: Iterable[tuple[bytes, list[FollowedPartition]]],
    partition_max_bytes: int,
    session: tuple[int, int] = NO_SESSION,
) -> bytes:
    """The body; ``limits`` are longest wait, least and most bytes, ``replica`` is id and broker epoch,
    ``session`` is id and epoch."""
    parts: list[bytes] = []
    count = 0
    for topic_id, partitions in topics:
        count += 1
        parts += (topic_id, uvarint(len(partitions) + 1))
        parts += [
            _PARTITION.pack(index, epoch, offset, last_epoch, start, partition_max_bytes, 0)
            for index, epoch, offset, last_epoch, start in partitions
        ]
        parts.append(b"\0")
    head = _HEAD.pack(*limits, _READ_UNCOMMITTED, *session)
    return b"".join((head, uvarint(count + 1), *parts, _TAIL.pack(1, 1, 1, 1, 13, *replica, 0)))
